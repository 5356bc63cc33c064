mod checkouts;
mod faults;
mod imports;
mod powercuts;
mod recoveries;
mod support;
mod upkeep;
mod workspaces;

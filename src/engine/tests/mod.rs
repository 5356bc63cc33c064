mod checkouts;
mod faults;
mod imports;
mod recoveries;
mod support;
mod upkeep;
mod workspaces;

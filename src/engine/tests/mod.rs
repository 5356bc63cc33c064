mod checkouts;
mod faults;
mod imports;
mod recoveries;
mod support;
mod workspaces;

mod checkouts;
mod imports;
mod recoveries;
mod support;
mod workspaces;

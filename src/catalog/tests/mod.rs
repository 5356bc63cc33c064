mod checkins;
mod dances;
mod faults;
mod imports;
mod laws;
mod records;
mod support;
mod terms;

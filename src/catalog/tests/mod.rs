mod checkins;
mod dances;
mod imports;
mod laws;
mod records;
mod support;

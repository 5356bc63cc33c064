mod checkins;
mod dances;
mod imports;
mod records;
mod support;

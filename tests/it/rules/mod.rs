//! The rules of admission: explored on a model, and the catalog beside that model.

mod catalog;
mod explored;
mod table;

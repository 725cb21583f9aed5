//! What is made of rows: tables on the terminal, CSV, and the page with its plots. Nothing here measures.
//!
//! * `goals`: what is to be reached, and whether a row does
//! * `format`: numbers with their units
//! * `table`: columns for terminals and for Markdown; `figure`: the table of a figure
//! * `terminal`, `csv`: what a run leaves behind, beside its JSON
//! * `page`, `remarks`, `plots`, `chart`: `docs/performance.md`

mod chart;
pub(crate) mod csv;
mod figure;
pub(crate) mod format;
mod goals;
pub(crate) mod page;
mod plots;
mod remarks;
mod table;
pub(crate) mod terminal;

//! Reports from rows: tables on the terminal, CSV, and the page with its plots. Nothing here measures.
//!
//! * `goals`: the goals, and whether a row meets its goal
//! * `format`: numbers with units
//! * `table`: columns for terminals and for Markdown; `figure`: the table of a figure
//! * `terminal`, `csv`: the output of a run, besides its JSON
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

//! The ifuncs: a query that runs where the columns are, and one that fetches columns, for comparison. The servers export two
//! functions that lend their columns page by page; they contain no query code.

#![no_std]

extern crate alloc;

mod query;

use alloc::vec::Vec;

use ifunc::prelude::*;
use ifunc::serde::{Deserialize, Serialize};

/// Rows of a page: what the server lends at a time.
pub const PAGE: usize = 1024;

/// The server's columns, whose memory only the server can access.
#[derive(Opaque)]
#[opaque("table/1")]
pub struct Table(ifunc::Foreign);

#[ifunc::import]
unsafe extern "C" {
    /// Number of rows.
    safe fn rows(table: &Table) -> u64;
    /// Lends a page of a column, without a copy; `None` beyond the last page. Values after the last row are 0.
    safe fn page(table: &Table, column: u32, page: u64) -> Option<&[i64; PAGE]>;
}

/// A column of the orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub enum Column {
    /// Number of the order.
    Order,
    /// Day of the year.
    Day,
    /// Number of the customer.
    Customer,
    /// Number of items.
    Quantity,
    /// Price of an item, in cents.
    Price,
}

impl Column {
    /// All of them, in the order of the files.
    pub const ALL: [Self; 5] = [
        Self::Order,
        Self::Day,
        Self::Customer,
        Self::Quantity,
        Self::Price,
    ];
}

/// Selects rows whose value in a column is between two others, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Condition {
    /// The column.
    pub column: Column,
    /// Least selected value.
    pub least: i64,
    /// Greatest selected value.
    pub most: i64,
}

/// The payload of [`top_k()`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Query {
    /// Number of rows to return.
    pub k: u32,
    /// A row is selected if all of these hold.
    pub conditions: Vec<Condition>,
}

/// A row of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Row {
    /// Quantity × price: a value that no column holds.
    pub revenue: i64,
    /// Number of the order.
    pub order: i64,
    /// Number of the customer.
    pub customer: i64,
}

/// The answer of [`top_k()`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Top {
    /// The selected rows of greatest revenue, greatest first; of equal revenue, the lower order first.
    pub rows: Vec<Row>,
    /// Number of all selected rows.
    pub selected: u64,
    /// Sum of their revenues.
    pub revenue: i64,
}

/// Filters the rows, computes their revenues, and answers the `k` greatest, with the number and sum of all.
#[ifunc(codec = postcard, idempotent)]
pub fn top_k(query: Query, table: &Table) -> Top {
    query::run(&query, rows(table), |column, number| {
        page(table, column as u32, number)
    })
}

/// The payload of [`fetch()`].
#[ifunc::layout]
#[derive(Clone, Copy, Debug)]
pub struct Fetch {
    /// First page.
    pub page: u64,
    /// The column: its position in [`Column::ALL`].
    pub column: u64,
}

/// Answers pages of a column from `page` on, as many as fit into an answer; none at the end.
#[ifunc(idempotent)]
pub fn fetch(from: Fetch, table: &Table, ctx: &mut Context) {
    ctx.answer_with(|space| {
        let mut pages = space.chunks_exact_mut(size_of::<[i64; PAGE]>());
        let mut len = 0;
        for (space, number) in (&mut pages).zip(from.page..) {
            let Some(values) = page(table, from.column as u32, number) else {
                break;
            };
            space.copy_from_slice(ifunc::zerocopy::IntoBytes::as_bytes(values));
            len += space.len();
        }
        len
    });
}

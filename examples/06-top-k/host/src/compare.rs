//! The result without ifuncs: columns in memory, and a loop over their rows.

use example_06_top_k_ifuncs::{Column, Fetch, PAGE, Query, Row, Top, fetch};
use example_servers::Failure;
use ifunc_rt::Handle;

/// Calls under way while a column is fetched.
const AT_A_TIME: usize = 8;
/// Pages of an answer of 64 KiB.
const PAGES: u64 = (64 << 10) / (8 * PAGE as u64);

/// The result of a query, row by row.
#[must_use]
pub fn in_memory(query: &Query, columns: &[Vec<i64>; 5]) -> Top {
    let value = |column: Column, row: usize| columns[column as usize][row];
    let mut top = Top::default();
    for row in 0..columns[Column::Order as usize].len() {
        let is_selected = query.conditions.iter().all(|condition| {
            let value = value(condition.column, row);
            condition.least <= value && value <= condition.most
        });
        if !is_selected {
            continue;
        }
        let revenue = value(Column::Quantity, row) * value(Column::Price, row);
        top.selected += 1;
        top.revenue += revenue;
        top.rows.push(Row {
            revenue,
            order: value(Column::Order, row),
            customer: value(Column::Customer, row),
        });
    }
    rank(&mut top.rows, query.k);
    top
}

/// Keeps the `k` best rows, best first.
pub fn rank(rows: &mut Vec<Row>, k: u32) {
    rows.sort_unstable_by_key(|row| (-row.revenue, row.order));
    rows.truncate(k as usize);
}

/// Appends a server's column, with several calls under way.
///
/// # Errors
/// The server fails.
pub fn fetch_column(handle: &Handle<fetch>, column: u64, into: &mut Vec<i64>) -> Result<(), Failure> {
    let mut under_way = std::collections::VecDeque::new();
    let mut page = 0;
    loop {
        while under_way.len() < AT_A_TIME {
            under_way.push_back(handle.call(&Fetch { page, column })?);
            page += PAGES;
        }
        let Some(call) = under_way.pop_front() else {
            return Ok(());
        };
        let bytes = call.wait_bytes()?;
        let words = bytes.as_chunks::<8>().0;
        into.extend(words.iter().map(|word| i64::from_le_bytes(*word)));
        if bytes.len() < PAGES as usize * 8 * PAGE {
            // The calls under way are beyond the end; their answers are empty.
            return Ok(());
        }
    }
}

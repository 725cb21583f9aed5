//! The query, page by page, in constant memory.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::{Column, PAGE, Query, Row, Top};

/// Runs a query on `rows` rows, whose columns `page` lends.
pub(crate) fn run<'a>(
    query: &Query,
    rows: u64,
    page: impl Fn(Column, u64) -> Option<&'a [i64; PAGE]>,
) -> Top {
    let mut best = Best::new(query.k as usize);
    let (mut selected, mut revenue) = (0, 0_i64);
    let mut mask = [false; PAGE];
    let lent = |column, number| {
        page(column, number).unwrap_or_else(|| panic!("the server has no page {number} of {column:?}"))
    };
    for number in 0..rows.div_ceil(PAGE as u64) {
        let left = (rows - number * PAGE as u64).min(PAGE as u64) as usize;
        mask[..left].fill(true);
        mask[left..].fill(false);
        for condition in &query.conditions {
            // Without a branch: the compiler compares several values with one instruction.
            for (mask, &value) in mask.iter_mut().zip(lent(condition.column, number)) {
                *mask &= (value >= condition.least) & (value <= condition.most);
            }
        }
        let here = mask.iter().filter(|mask| **mask).count();
        if here == 0 {
            continue;
        }
        selected += here as u64;
        let (quantities, prices) = (lent(Column::Quantity, number), lent(Column::Price, number));
        let (orders, customers) = (lent(Column::Order, number), lent(Column::Customer, number));
        for at in (0..left).filter(|&at| mask[at]) {
            let worth = quantities[at] * prices[at];
            revenue += worth;
            best.offer(Row {
                revenue: worth,
                order: orders[at],
                customer: customers[at],
            });
        }
    }
    Top {
        rows: best.into_rows(),
        selected,
        revenue,
    }
}

/// The best rows so far; the worst of them is at the top of the heap.
struct Best {
    k: usize,
    heap: BinaryHeap<Reverse<Ranked>>,
}

/// Greater is better: by revenue, then by the lower order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ranked(i64, Reverse<i64>, i64);

impl Best {
    fn new(k: usize) -> Self {
        Self {
            k,
            heap: BinaryHeap::new(),
        }
    }

    fn offer(&mut self, row: Row) {
        let ranked = Ranked(row.revenue, Reverse(row.order), row.customer);
        if self.heap.len() < self.k {
            self.heap.push(Reverse(ranked));
        } else if let Some(mut worst) = self.heap.peek_mut()
            && ranked > worst.0
        {
            worst.0 = ranked;
        }
    }

    fn into_rows(self) -> Vec<Row> {
        let ranked = self.heap.into_sorted_vec();
        let row = |Reverse(Ranked(revenue, Reverse(order), customer))| Row {
            revenue,
            order,
            customer,
        };
        ranked.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::Condition;

    /// Two columns count up, the others hold 1; `rows` rows.
    fn answer(rows: u64, query: &Query) -> Top {
        let pages: Vec<[i64; PAGE]> = (0..rows.div_ceil(PAGE as u64) as usize)
            .map(|page| {
                core::array::from_fn(|at| {
                    let row = page * PAGE + at;
                    if (row as u64) < rows { row as i64 } else { 0 }
                })
            })
            .collect();
        let ones = [1; PAGE];
        run(query, rows, |column, page| match column {
            Column::Order | Column::Price => pages.get(page as usize),
            _ => Some(&ones),
        })
    }

    #[test]
    fn the_best_rows_come_first() {
        let query = Query {
            k: 3,
            conditions: vec![],
        };
        let top = answer(3000, &query);
        assert_eq!((top.selected, top.revenue), (3000, 3000 * 2999 / 2));
        let orders: Vec<i64> = top.rows.iter().map(|row| row.order).collect();
        assert_eq!(orders, [2999, 2998, 2997]);
    }

    #[test]
    fn conditions_hold_together_and_padding_is_no_row() {
        let of = |column, least, most| Condition { column, least, most };
        let conditions = vec![
            of(Column::Order, 0, 5),
            of(Column::Price, 3, 100),
            of(Column::Day, 1, 1),
        ];
        let top = answer(1025, &Query { k: 10, conditions });
        let orders: Vec<i64> = top.rows.iter().map(|row| row.order).collect();
        assert_eq!((top.selected, orders), (3, vec![5, 4, 3]));
        assert_eq!(
            answer(
                1025,
                &Query {
                    k: 0,
                    conditions: vec![]
                }
            )
            .selected,
            1025
        );
    }
}

//! The syntax tree of a query.

use alloc::boxed::Box;

use ifunc::prelude::*;
use ifunc::serde::{Deserialize, Serialize};

/// An expression over a row. Truth is 1, and everything but 0 is true.
#[derive(Clone, Debug, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub enum Expr {
    /// The row's time.
    Time,
    /// The row's value.
    Value,
    /// A number.
    Number(f64),
    /// Whether the first is less than the second.
    Less(Box<Expr>, Box<Expr>),
    /// Whether both are true.
    And(Box<Expr>, Box<Expr>),
    /// The product.
    Times(Box<Expr>, Box<Expr>),
}

impl Expr {
    /// `self < other`
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self::Less(Box::new(self), Box::new(other))
    }

    /// `self and other`
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::And(Box::new(self), Box::new(other))
    }

    /// `self * other`
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        Self::Times(Box::new(self), Box::new(other))
    }

    pub(crate) fn eval(&self, time: i64, value: f64) -> f64 {
        match self {
            Self::Time => time as f64,
            Self::Value => value,
            Self::Number(number) => *number,
            Self::Less(a, b) => f64::from(a.eval(time, value) < b.eval(time, value)),
            Self::And(a, b) => f64::from(a.eval(time, value) != 0.0 && b.eval(time, value) != 0.0),
            Self::Times(a, b) => a.eval(time, value) * b.eval(time, value),
        }
    }
}

//! Matrices, decimal numbers, dates and identifiers.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::str::FromStr;

use corpus_case::{Disorder, Put, World, text};
use ifunc::prelude::*;
use rust_decimal::Decimal;
use uuid::Uuid;

fn numbers(input: &[u8], world: &World) -> impl Iterator<Item = f64> + use<> {
    Disorder::new(world.seed ^ input.len() as u64).map(|word| (word >> 40) as f64 / 1e5 - 80.0)
}

/// Small matrices.
#[ifunc]
pub fn small_matrices(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let matrix = nalgebra::Matrix4::from_iterator(numbers(input, world).take(16));
    out.put(matrix.determinant());
    if let Some(inverse) = matrix.try_inverse() {
        (inverse * matrix).iter().for_each(|value| out.put(*value));
    }
    let turned =
        nalgebra::Rotation3::from_euler_angles(0.1, 0.2, 0.3) * nalgebra::Vector3::new(1.0, 2.0, 3.0);
    turned.iter().for_each(|value| out.put(*value));
    out
}

/// Arrays of several dimensions.
#[ifunc]
pub fn large_arrays(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut numbers = numbers(input, world);
    let side = 3 + input.len() % 9;
    let a = ndarray::Array2::from_shape_fn((side, side), |_| numbers.next().unwrap_or_default());
    let product = a.dot(&a.t());
    product.diag().iter().for_each(|value| out.put(*value));
    product
        .sum_axis(ndarray::Axis(0))
        .iter()
        .for_each(|value| out.put(*value));
    out
}

/// Decimal numbers.
#[ifunc]
pub fn decimals(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let price = Decimal::new((world.seed % 1_000_000) as i64, 2);
    for word in ["0.1", "-12.345", "1e5"]
        .into_iter()
        .chain(text(input).split_whitespace().take(20))
    {
        match Decimal::from_str(word) {
            Ok(number) => {
                out.put((price * number.round_dp(3)).to_string());
                out.put(
                    price
                        .checked_div(number)
                        .map(|ratio| ratio.round_dp(6).to_string()),
                );
            }
            Err(error) => out.put(error.to_string()),
        }
    }
    out
}

/// Dates, by three crates.
#[ifunc]
pub fn dates(input: &[u8], world: &mut World) -> Vec<u8> {
    use jiff::ToSpan as _;

    let mut out = Vec::new();
    let days = (world.seed % 20_000) as i64 + input.len() as i64;
    let first = chrono::NaiveDate::from_ymd_opt(2000, 2, 29).unwrap_or_default();
    let later = first + chrono::Duration::days(days);
    out.put(later.format("%A, %Y-%m-%d, week %V").to_string());
    let same = jiff::civil::date(2000, 2, 29).checked_add(days.days());
    out.put(same.map(|date| date.to_string()).unwrap_or_default());
    let same = time::Date::from_ordinal_date(2000, 60).map(|date| date + time::Duration::days(days));
    out.put(
        same.map(|date| (date.to_julian_day(), date.to_iso_week_date().1))
            .unwrap_or_default(),
    );
    for word in ["2024-02-30", "2024-02-29"]
        .into_iter()
        .chain(text(input).split_whitespace().take(20))
    {
        out.put(chrono::NaiveDate::parse_from_str(word, "%Y-%m-%d").is_ok());
        out.put(word.parse::<jiff::civil::Date>().is_ok());
    }
    out
}

/// Identifiers: not which they are, but that they are random.
#[ifunc]
pub fn random_identifiers(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut ids: Vec<Uuid> = (0..2 + input.len() % 10).map(|_| Uuid::new_v4()).collect();
    out.put(ids.iter().all(|id| id.get_version_num() == 4));
    out.put(Uuid::parse_str(&ids[0].to_string()).is_ok_and(|id| id == ids[0]));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    out.put(ids.len() == count);
    out
}

corpus_case::cases! {
    small_matrices: "nalgebra";
    large_arrays: "ndarray";
    decimals: "rust_decimal";
    dates: "chrono", "jiff", "time";
    random_identifiers: "uuid", "getrandom";
}

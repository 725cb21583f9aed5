//! Numbers with units, to three digits.

/// `8 B`, `4 KiB`, `1 MiB`. Empty for 0.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        n if n >= 1 << 20 && n % (1 << 20) == 0 => format!("{} MiB", n >> 20),
        n if n >= 1 << 10 && n % (1 << 10) == 0 => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

/// A value in its unit: `130 ns`, `8.81 M/s`, `57 instructions`.
pub(crate) fn value(value: f64, unit: &str) -> String {
    match unit.split_once("/s") {
        Some(("B", "")) => scaled(value, &["B/s", "kB/s", "MB/s", "GB/s"]),
        Some((_, "")) => scaled(value, &["/s", "k/s", "M/s", "G/s"]),
        _ if unit == "ns" => scaled(value, &["ns", "µs", "ms", "s"]),
        _ => format!("{} {unit}", three(value)),
    }
}

/// `0.53`, `12.4`, `0.046`
pub(crate) fn ratio(ratio: f64) -> String {
    if ratio.abs() < 0.1 {
        format!("{ratio:.3}")
    } else {
        three(ratio)
    }
}

/// Three values of one unit: `130 / 180 / 950 ns`.
pub(crate) fn percentiles(values: [f64; 3], unit: &str) -> String {
    let texts = values.map(|each| value(each, unit));
    let unit_of = |text: &str| text.rsplit_once(' ').map(|(_, unit)| unit.to_owned());
    let units = texts.each_ref().map(|text| unit_of(text));
    if units[0] == units[1] && units[1] == units[2] {
        let number = |text: &str| {
            text.rsplit_once(' ')
                .map_or(text, |(number, _)| number)
                .to_owned()
        };
        format!("{} / {} / {}", number(&texts[0]), number(&texts[1]), texts[2])
    } else {
        texts.join(" / ")
    }
}

/// `10 µs` for `10.0 µs`, for chosen numbers.
pub(crate) fn without_zeros(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.into(),
    }
}

/// Scales by thousands.
fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    for larger in units {
        // Keeps values that would round to four digits for the next unit.
        if value.abs() < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    format!("{} {unit}", three(value))
}

fn three(value: f64) -> String {
    match value.abs() {
        at if at >= 99.95 => format!("{value:.0}"),
        at if at >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(value(130.4, "ns"), "130 ns");
        assert_eq!(value(999.7, "ns"), "1.00 µs");
        assert_eq!(value(48_213.0, "ns"), "48.2 µs");
        assert_eq!(value(8_812_000.0, "messages/s"), "8.81 M/s");
        assert_eq!(value(206_000.0, "updates/s"), "206 k/s");
        assert_eq!(value(1.5e9, "B/s"), "1.50 GB/s");
        assert_eq!(value(212.0, "instructions"), "212 instructions");
        assert_eq!(without_zeros("10.0 µs"), "10 µs");
        assert_eq!(without_zeros("100 ns"), "100 ns");
        assert_eq!(ratio(0.046), "0.046");
        assert_eq!(ratio(0.53), "0.53");
        assert_eq!(ratio(12.37), "12.4");
        assert_eq!(percentiles([130.0, 180.0, 950.0], "ns"), "130 / 180 / 950 ns");
        assert_eq!(
            percentiles([130.0, 180.0, 9500.0], "ns"),
            "130 ns / 180 ns / 9.50 µs"
        );
    }

    #[test]
    fn sizes_are_whole() {
        let texts = [0, 1, 200, 1000, 1024, 4096, 65_536, 1 << 20].map(bytes);
        assert_eq!(
            texts,
            ["", "1 B", "200 B", "1000 B", "1 KiB", "4 KiB", "64 KiB", "1 MiB"]
        );
    }
}

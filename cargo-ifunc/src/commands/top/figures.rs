//! Short forms of numbers.

/// A number of things, with at most four digits: `999`, `1.2 k`, `33.4 M`.
pub(super) fn count(number: f64) -> String {
    scaled(number, 1000.0, &["", " k", " M", " G", " T"])
}

/// A number of these things: `1 frame`, `1.2 k frames`.
pub(super) fn many(number: f64, noun: &str) -> String {
    let plural = match number == 1.0 {
        true => "",
        false if noun.ends_with(['s', 'h']) => "es",
        false => "s",
    };
    format!("{} {noun}{plural}", count(number))
}

/// A number of bytes: `512 B`, `4.0 KiB`.
pub(super) fn bytes(number: f64) -> String {
    scaled(number, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// A duration: `850 ns`, `12.4 µs`, `1.2 s`.
pub(super) fn nanoseconds(ns: u64) -> String {
    scaled(ns as f64, 1000.0, &[" ns", " µs", " ms", " s"])
}

/// A duration since a start: `3 s`, `12 min 5 s`, `2 d 3 h`.
pub(super) fn uptime(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let first = units.iter().position(|(size, _)| seconds >= *size).unwrap_or(3);
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (size, name) in units.iter().skip(first).take(2) {
        parts.push(format!("{} {name}", rest / size));
        rest %= size;
    }
    parts.join(" ")
}

fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let mut number = number;
    let mut unit = 0;
    // Rounding would add a digit.
    while number >= step - 0.5 && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    match unit {
        0 if number > 0.0 && number < 9.95 && number.fract() != 0.0 => format!("{number:.1}{}", units[0]),
        0 => format!("{number:.0}{}", units[0]),
        _ => format!("{number:.1}{}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(0.25), "0.2");
        assert_eq!(count(999.0), "999");
        assert_eq!(count(999.6), "1.0 k");
        assert_eq!(count(33_400_000.0), "33.4 M");
        assert_eq!(many(1.0, "crash"), "1 crash");
        assert_eq!(many(2.0, "crash"), "2 crashes");
        assert_eq!(many(0.0, "frame"), "0 frames");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(4096.0), "4.0 KiB");
        assert_eq!(nanoseconds(850), "850 ns");
        assert_eq!(nanoseconds(12_400), "12.4 µs");
        assert_eq!(nanoseconds(u64::MAX), "18446744073.7 s");
        assert_eq!(uptime(0), "0 s");
        assert_eq!(uptime(725_000_000_000), "12 min 5 s");
        assert_eq!(uptime(3_600_000_000_000), "1 h 0 min");
    }
}

// The same text is compiled into an image and into the test that compares the two.

/// Code that makes compilers emit tables, constants and calls of helpers.
pub(crate) fn work(seed: u64) -> u64 {
    use alloc::collections::BTreeMap;
    use alloc::format;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    trait Shape {
        fn area(&self) -> f64;
        fn name(&self) -> &'static str;
    }
    struct Square(f64);
    struct Circle(f64);
    impl Shape for Square {
        fn area(&self) -> f64 {
            self.0 * self.0
        }
        fn name(&self) -> &'static str {
            "square"
        }
    }
    impl Shape for Circle {
        fn area(&self) -> f64 {
            self.0 * self.0 * core::f64::consts::PI
        }
        fn name(&self) -> &'static str {
            "circle"
        }
    }
    fn hash(text: &str) -> u64 {
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
    }
    fn operation(code: u64, x: u64) -> u64 {
        match code % 9 {
            0 => x.wrapping_mul(3),
            1 => x.rotate_left(7),
            2 => x ^ 0x5555,
            3 => x.count_ones().into(),
            4 => x.leading_zeros().into(),
            5 => x / 7,
            6 => x % 1_000_003,
            7 => x.swap_bytes(),
            _ => !x,
        }
    }
    static WORDS: [&str; 6] = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"];

    let mut text = String::new();
    let shapes: [&dyn Shape; 2] = [&Square(seed as f64 / 3.0), &Circle(seed as f64 / 7.0)];
    for shape in shapes {
        text += &format!("{} {:.3} {:e};", shape.name(), shape.area(), shape.area());
    }
    let mut map = BTreeMap::new();
    let mut state = seed;
    for i in 0..200_u64 {
        state = operation(state.wrapping_add(i), state.wrapping_add(i * i));
        map.insert(format!("{}-{:04x}", WORDS[(state % 6) as usize], state & 0xffff), state);
    }
    let mut values: Vec<_> = map.values().copied().collect();
    values.sort_unstable_by_key(|v| v.reverse_bits());
    let wide = u128::from(seed) << 70 | u128::from(state);
    text += &(wide / (u128::from(values[3]) + 1)).to_string();
    text += &"3.141592653589793e-5".parse::<f64>().unwrap_or(0.0).to_string();
    text += &map.keys().take(5).map(|k| k.to_uppercase()).collect::<Vec<_>>().join(",");
    text += &format!("{:?} {:?}", values.iter().take(3).collect::<Vec<_>>(), u64::from_str_radix("zz", 36));
    hash(&text) ^ values.iter().fold(0, |h: u64, v| h.rotate_left(5) ^ v)
}

//! Whether memory grows.

/// Samples of a process's memory over what it has done.
#[derive(Clone, Default)]
pub(super) struct Slope(Vec<(f64, f64)>);

impl Slope {
    /// So much memory (KiB) when so much was done.
    pub(super) fn sample(&mut self, done: u64, kib: u64) {
        self.0.push((done as f64, kib as f64));
    }

    /// Growth, in KiB, over all that was done after the first 30 %, by the straight line that fits best: single samples
    /// depend on what is under way.
    pub(super) fn growth(&self) -> f64 {
        let end = self.0.last().map_or(0.0, |(done, _)| *done);
        let warm: Vec<_> = self.0.iter().filter(|(done, _)| *done > 0.3 * end).collect();
        let n = warm.len() as f64;
        let mean =
            |of: fn(&(f64, f64)) -> f64| warm.iter().map(|sample| of(sample)).sum::<f64>() / n.max(1.0);
        let (x, y) = (mean(|sample| sample.0), mean(|sample| sample.1));
        let spread: f64 = warm.iter().map(|sample| (sample.0 - x).powi(2)).sum();
        let together: f64 = warm.iter().map(|sample| (sample.0 - x) * (sample.1 - y)).sum();
        if spread == 0.0 {
            return 0.0;
        }
        together / spread * 0.7 * end
    }

    /// How many samples there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

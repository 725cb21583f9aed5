//! An `ifuncd` beside a file of measurements, and a client with a question: by sending its parser, and by fetching the file.

mod link;
mod measure;
mod node;
mod query;

pub use example_servers::{Args, Failure};
pub use measure::source;
pub use node::target;

/// The name of the file, in the folder of the node.
const FILE: &str = "measurements.csv";
/// Its length, unless the option says another.
const BYTES: u64 = 64 << 20;

/// The options of both programs.
struct Options {
    /// Length of the file.
    bytes: u64,
    /// Bits per second of the link; `None`: it is not limited.
    link: Option<u64>,
}

/// What they are.
const USAGE: &str = "cargo ifunc run 10-near-data [--transport tls] -- [--bytes BYTES] [--gbits GIGABITS]";

impl Options {
    fn parse() -> Result<Self, Failure> {
        let mut args = Args::from_env();
        let bytes = args.number("--bytes", BYTES, 1 << 10, 1 << 40)?;
        let link: Option<f64> = args.option("--gbits")?;
        args.end(USAGE)?;
        match link {
            Some(gigabits) if !(0.001..=1000.0).contains(&gigabits) => {
                Err(format!("`--gbits {gigabits}`: the least is 0.001, the most is 1000").into())
            }
            _ => Ok(Self {
                bytes,
                link: link.map(|gigabits| (gigabits * 1e9) as u64),
            }),
        }
    }
}

//! What the example's results come to: ratios, and what they should be.

use std::fmt;
use std::time::Duration;

/// Two modes, each one chase at a time or several (`true`), and the ratio that should be reached with so many servers.
type Goal = ((&'static str, bool), (&'static str, bool), fn(f64) -> Option<f64>);

/// A get is a message there and one back; a hop is one message, and one of N needs none.
const RATIOS: [Goal; 5] = [
    (("ifunc", false), ("get", false), |n| {
        (n > 1.0).then(|| 0.8 * 2.0 * n / (n - 1.0))
    }),
    (("ifunc", false), ("am", false), |n| (n > 1.0).then_some(0.9)),
    (("ifunc", true), ("get", true), |_| Some(3.0)),
    // What this machine and this network can show: the same with a handler that was compiled in.
    (("am", true), ("get", true), |_| None),
    (("ifunc", true), ("am", true), |_| None),
];

/// The results of a run.
pub(super) struct Results {
    servers: usize,
    delay: Duration,
    /// How long a byte really took.
    one_way: String,
    modes: Vec<Mode>,
}

impl Results {
    /// Reads the example's JSON.
    pub(super) fn parse(servers: usize, delay: Duration, one_way: &str, json: &str) -> Result<Self, String> {
        if json.contains("\"checked\": false") {
            return Err("a chase came to a wrong entry".into());
        }
        let modes: Vec<Mode> = json.lines().filter_map(Mode::parse).collect();
        if modes.is_empty() {
            return Err("the source wrote no results".into());
        }
        Ok(Self {
            servers,
            delay,
            one_way: one_way.to_owned(),
            modes,
        })
    }

    fn find(&self, (name, is_batched): (&str, bool)) -> Option<&Mode> {
        self.modes
            .iter()
            .find(|mode| match mode.name.split_once(" --batch ") {
                Some((batched, _)) => is_batched && batched == name,
                None => !is_batched && mode.name == name,
            })
    }

    /// Quartiles of a ratio, and what it should be at least.
    fn ratio(&self, (mode, to, goal): Goal) -> Option<([f64; 3], Option<f64>)> {
        let ratio = self.find(mode)?.to(self.find(to)?);
        Some((ratio, goal(self.servers as f64)))
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { servers, delay, .. } = self;
        let micros = delay.as_micros();
        for (mode, to, goal) in RATIOS {
            let (Some(([low, median, high], goal)), Some(mode), Some(to)) =
                (self.ratio((mode, to, goal)), self.find(mode), self.find(to))
            else {
                continue;
            };
            let (name, to_name) = (&mode.name, &to.name);
            write!(
                f,
                "{servers} servers, {micros} µs: {name} / {to_name} = {median:.2} ({low:.2} – {high:.2})"
            )?;
            match goal {
                Some(goal) if median >= goal => writeln!(f, "; at least {goal:.2}: met")?,
                Some(goal) => writeln!(f, "; at least {goal:.2}: missed")?,
                None => writeln!(f)?,
            }
        }
        for Mode {
            name,
            rounds,
            cpu_us_per_chase,
        } in &self.modes
        {
            let rate = quartiles(rounds.clone())[1];
            writeln!(
                f,
                "{servers} servers, {micros} µs: {name}: {rate:.0} chases per second, {cpu_us_per_chase:.1} µs of processors per chase"
            )?;
        }
        Ok(())
    }
}

/// The ratios of runs that differ in the delay, as a table in Markdown.
pub(super) fn table(runs: &[Results]) -> String {
    let mut head = vec!["servers".to_owned(), "delay".into(), "a byte over TCP".into()];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for run in runs {
        let delay = match run.delay.as_micros() {
            0 => "none".into(),
            micros => format!("{micros} µs"),
        };
        let one_way = run
            .one_way
            .split_once(" (")
            .map_or(&*run.one_way, |(median, _)| median);
        rows.push(vec![run.servers.to_string(), delay, one_way.to_owned()]);
    }
    for goal in RATIOS {
        let Some(run) = runs.iter().find(|run| run.ratio(goal).is_some()) else {
            continue;
        };
        let name = |mode| run.find(mode).map_or("", |mode| &mode.name);
        head.push(match goal.2(run.servers as f64) {
            Some(least) => format!("{} ÷ {} (≥ {least:.2})", name(goal.0), name(goal.1)),
            None => format!("{} ÷ {}", name(goal.0), name(goal.1)),
        });
        for (run, row) in runs.iter().zip(&mut rows) {
            row.push(match run.ratio(goal) {
                Some(([_, median, _], _)) => format!("{median:.2}"),
                None => String::new(),
            });
        }
    }
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = vec!["---:".to_owned(); head.len()];
    let rows = rows.iter().map(|row| line(row)).collect::<String>();
    format!("{}{}{rows}", line(&head), line(&rule))
}

/// The results of a mode.
struct Mode {
    name: String,
    /// Chases per second in each round.
    rounds: Vec<f64>,
    cpu_us_per_chase: f64,
}

impl Mode {
    /// Reads a line of the JSON.
    fn parse(line: &str) -> Option<Self> {
        let field = |name: &str| Some(line.split_once(&format!("\"{name}\": "))?.1);
        let (name, _) = field("mode")?.strip_prefix('"')?.split_once('"')?;
        let (rounds, _) = field("rounds")?.strip_prefix('[')?.split_once(']')?;
        let rounds = rounds
            .split(", ")
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        let (cpu, _) = field("cpu_us_per_chase")?.split_once(',')?;
        Some(Self {
            name: name.to_owned(),
            rounds,
            cpu_us_per_chase: cpu.parse().ok()?,
        })
    }

    /// The quartiles of the ratios in the rounds.
    fn to(&self, other: &Self) -> [f64; 3] {
        let rounds = self.rounds.iter().zip(&other.rounds);
        quartiles(rounds.map(|(own, other)| own / other).collect())
    }
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| {
        values
            .get(values.len() * quarter / 4)
            .copied()
            .unwrap_or(f64::NAN)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Mode, Results, table};

    fn line(mode: &str, rounds: &str) -> String {
        format!(
            "  {{\"mode\": \"{mode}\", \"chases_per_s\": 7.000, \"cpu_us_per_chase\": 12.500, \"rounds\": [{rounds}]}},"
        )
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds() {
        let (own, other) = (
            line("ifunc --batch 16", "1.000, 8.000, 3.000"),
            line("am", "2.000, 4.000, 3.000"),
        );
        let (own, other) = (Mode::parse(&own).unwrap(), Mode::parse(&other).unwrap());
        assert_eq!((&*own.name, own.cpu_us_per_chase), ("ifunc --batch 16", 12.5));
        assert_eq!(own.to(&other), [0.5, 1.0, 2.0]);
        assert!(Mode::parse("]").is_none());
    }

    #[test]
    fn the_table_has_a_row_for_each_delay() {
        let json = |ifunc| [line("get", "2.0, 2.0, 2.0"), line("ifunc", ifunc)].join("\n");
        let run = |delay, one_way, ifunc| {
            let delay = Duration::from_micros(delay);
            Results::parse(2, delay, one_way, &json(ifunc)).unwrap()
        };
        let runs = [
            run(0, "8.0 µs (7.0 – 9.0)", "5.0, 5.0, 5.0"),
            run(50, "58.0 µs (57.0 – 59.0)", "7.0, 7.0, 7.0"),
        ];
        let expected = "| servers | delay | a byte over TCP | ifunc ÷ get (≥ 3.20) |\n| ---: | ---: | ---: | ---: |\n\
                        | 2 | none | 8.0 µs | 2.50 |\n| 2 | 50 µs | 58.0 µs | 3.50 |\n";
        assert_eq!(table(&runs), expected);
        let line = "2 servers, 0 µs: ifunc / get = 2.50 (2.50 – 2.50); at least 3.20: missed";
        assert_eq!(runs[0].to_string().lines().next(), Some(line));
        assert!(Results::parse(2, Duration::ZERO, "", "[\n]\n").is_err());
    }
}

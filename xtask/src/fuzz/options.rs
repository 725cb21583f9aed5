//! The options of the command.

/// How long a target runs with `--quick`, and without an option.
const QUICK: u64 = 10;
const DEFAULT: u64 = 60;

/// The options of the command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// Of all targets together.
    hours: Option<u64>,
    /// Of each target.
    seconds: Option<u64>,
    only: Vec<String>,
    pub(super) json: bool,
    /// Write the first inputs of each target.
    pub(super) seeds: bool,
    /// Replace the committed corpora by the smallest ones that cover as much as everything that was found.
    pub(super) merge: bool,
}

impl Options {
    pub(super) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("`{arg}` needs a value"));
            let number = |text: &str| match text.parse() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(format!("`{arg} {text}`: not a number above 0")),
            };
            match arg {
                "--quick" => options.seconds = Some(QUICK),
                "--seconds" => options.seconds = Some(number(value()?)?),
                "--hours" => options.hours = Some(number(value()?)?),
                "--only" => options.only.push(value()?.to_owned()),
                "--json" => options.json = true,
                "--seeds" => options.seeds = true,
                "--merge" => options.merge = true,
                _ => return Err(crate::help::no_option("fuzz", arg)),
            }
        }
        Ok(options)
    }

    /// The targets that are asked for, of all that there are.
    pub(super) fn chosen(&self, all: Vec<String>) -> Result<Vec<String>, String> {
        if let Some(unknown) = self.only.iter().find(|only| !all.contains(only)) {
            return Err(format!(
                "there is no fuzz target `{unknown}`\nhelp: there are {}",
                all.join(", ")
            ));
        }
        let is_chosen = |target: &String| self.only.is_empty() || self.only.contains(target);
        Ok(all.into_iter().filter(is_chosen).collect())
    }

    /// How long each of so many targets runs.
    pub(super) fn seconds_each(&self, targets: usize) -> u64 {
        match self.hours {
            Some(hours) => (hours * 3600 / targets.max(1) as u64).max(1),
            None => self.seconds.unwrap_or(DEFAULT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn time_is_of_each_target_or_of_all() {
        assert_eq!(parse("").unwrap().seconds_each(16), 60);
        assert_eq!(parse("--quick").unwrap().seconds_each(16), 10);
        assert_eq!(parse("--hours 2").unwrap().seconds_each(16), 450);
        assert!(parse("--hours").unwrap_err().contains("needs a value"));
        assert!(parse("--seconds 0").unwrap_err().contains("not a number above 0"));
        assert!(parse("--fast").unwrap_err().contains("no option `--fast`"));
    }

    #[test]
    fn targets_are_chosen_by_name() {
        let all = || ["hello", "frame"].map(str::to_owned).to_vec();
        assert_eq!(parse("").unwrap().chosen(all()).unwrap(), all());
        assert_eq!(parse("--only frame").unwrap().chosen(all()).unwrap(), ["frame"]);
        let error = parse("--only fame").unwrap().chosen(all()).unwrap_err();
        assert!(error.contains("`fame`\nhelp: there are hello, frame"), "{error}");
    }
}

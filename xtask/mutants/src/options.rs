//! The options of the command.

/// What the command was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Areas; all if there are none.
    pub(crate) only: Vec<String>,
    /// Mutants of each area; all without it.
    pub(crate) sample: Option<usize>,
    pub(crate) seed: u64,
    /// A part of the mutants' names: those alone, to repeat one.
    pub(crate) named: Option<String>,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` takes a value"));
            let number = |text: &str| {
                let error = |_| format!("`{word} {text}`: not a number");
                text.replace('_', "").parse::<u64>().map_err(error)
            };
            match word.as_str() {
                "--only" => options.only.push(value()?.clone()),
                "--sample" => options.sample = Some(number(value()?)? as usize),
                "--seed" => options.seed = number(value()?)?,
                "--named" => options.named = Some(value()?.clone()),
                other => return Err(format!("`{other}` is not an option of `cargo xtask mutants`")),
            }
        }
        if options.sample == Some(0) {
            return Err("`--sample 0`: no mutant".into());
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_have_values() {
        let options = parse("--only transport --sample 1_00 --seed 7").unwrap();
        assert_eq!((options.sample, options.seed), (Some(100), 7));
        assert_eq!(options.only, ["transport"]);
        assert_eq!(parse("").unwrap(), Options::default());
        for wrong in ["--only", "--sample", "--sample x", "--sample 0", "--all"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}

//! The ifuncs of a C object, by its symbols.

use std::path::Path;

use ifunc_abi::name;
use ifunc_abi::symbols::{BOUND_SUFFIX, INIT_SUFFIX, MAIN_SUFFIX, MAX_SIZE_SUFFIX};
use object::{Object, ObjectSymbol};

use crate::BuildError;

/// The mark that `IFUNC_MAIN_WITH_CONTEXT` of `ifunc.h` leaves beside `X_main`.
const STATUS_SUFFIX: &str = "_main_returns_status";
/// The mark that `IFUNC_SHAREABLE` leaves.
const SHAREABLE_SUFFIX: &str = "_main_is_shareable";
/// The mark that `IFUNC_IDEMPOTENT` leaves.
const IDEMPOTENT_SUFFIX: &str = "_main_is_idempotent";

/// The mark that `IFUNC_IMPORT_DATA` leaves beside the variable.
const VARIABLE_SUFFIX: &str = "_is_imported_data";

/// Argument order of `X_payload_init`, as the texts beside an image name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Convention {
    /// `X_payload_bound(source_args, n)`, `X_payload_init(source_args, n, payload, *size)`.
    Bound,
    /// `X_payload_get_max_size(source_args, n)`, `X_payload_init(payload, size, source_args, n)`.
    MaxSize,
}

impl Convention {
    /// Its name in an about text.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bound => "bound",
            Self::MaxSize => "max-size",
        }
    }
}

/// An ifunc of a C object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CIfunc {
    pub(crate) name: String,
    pub(crate) convention: Convention,
    /// `X_main` is declared with `IFUNC_MAIN_WITH_CONTEXT`, so that its result is a status.
    pub(crate) returns_status: bool,
    /// It is declared with `IFUNC_SHAREABLE`: it may run on several threads at once.
    pub(crate) shareable: bool,
    /// It is declared with `IFUNC_IDEMPOTENT`: it may run twice.
    pub(crate) idempotent: bool,
}

/// The ifuncs of an object. An object without ifuncs is a helper of other files.
pub(crate) fn find(file: &Path, data: &[u8]) -> Result<Vec<CIfunc>, BuildError> {
    if let Some(what) = ifunc_link::intermediate_code(data) {
        return Err(BuildError::CIfunc {
            file: file.into(),
            reason: format!("its object is {what}, not machine code"),
            help: "compile without `-flto`".into(),
        });
    }
    let object = object::File::parse(data).map_err(|e| {
        BuildError::Input(ifunc_link::InputError {
            name: file.display().to_string(),
            reason: e.to_string(),
        })
    })?;
    let mut defined: Vec<&str> = object
        .symbols()
        .filter(|s| s.is_definition() && s.is_global())
        .filter_map(|s| s.name().ok())
        .collect();
    defined.sort_unstable();
    from_symbols(file, &defined)
}

/// The imports that a C object declares as variables.
pub(crate) fn variables(data: &[u8]) -> Vec<String> {
    let Ok(object) = object::File::parse(data) else {
        return Vec::new();
    };
    let marks = object.symbols().filter(|symbol| symbol.is_definition());
    let variable = |symbol: object::Symbol<'_, '_>| {
        let name = symbol.name().ok()?.strip_suffix(VARIABLE_SUFFIX)?;
        Some(name.to_owned())
    };
    marks.filter_map(variable).collect()
}

fn from_symbols(file: &Path, defined: &[&str]) -> Result<Vec<CIfunc>, BuildError> {
    let has = |name: &str, suffix: &str| defined.contains(&&*format!("{name}{suffix}"));
    let error = |reason: String, help: String| BuildError::CIfunc {
        file: file.into(),
        reason,
        help,
    };
    let mut found = Vec::new();
    for name in defined
        .iter()
        .filter_map(|s| s.strip_suffix(MAIN_SUFFIX))
        .filter(|n| name::is_valid(n))
    {
        if !has(name, INIT_SUFFIX) {
            return Err(error(
                format!("`{name}{MAIN_SUFFIX}` is there, `{name}{INIT_SUFFIX}` is not"),
                format!(
                    "an ifunc needs `int {name}{INIT_SUFFIX}(const void *source_args, size_t n, void *payload, size_t *payload_size)`; another function must not end in `{MAIN_SUFFIX}`, or be `static`"
                ),
            ));
        }
        let convention = match (has(name, BOUND_SUFFIX), has(name, MAX_SIZE_SUFFIX)) {
            (true, false) => Convention::Bound,
            (false, true) => Convention::MaxSize,
            (true, true) => {
                return Err(error(
                    format!("both `{name}{BOUND_SUFFIX}` and `{name}{MAX_SIZE_SUFFIX}` are there"),
                    "keep one: it selects the argument order of `payload_init`, `(source_args, n, payload, *size)` with `payload_bound`, `(payload, size, source_args, n)` with `payload_get_max_size`".into(),
                ));
            }
            (false, false) => {
                return Err(error(
                    format!("neither `{name}{BOUND_SUFFIX}` nor `{name}{MAX_SIZE_SUFFIX}` is there"),
                    format!(
                        "define `size_t {name}{BOUND_SUFFIX}(const void *source_args, size_t n)`: how large a payload can get"
                    ),
                ));
            }
        };
        found.push(CIfunc {
            name: name.into(),
            convention,
            returns_status: has(name, STATUS_SUFFIX),
            shareable: has(name, SHAREABLE_SUFFIX),
            idempotent: has(name, IDEMPOTENT_SUFFIX),
        });
    }
    let orphan = [INIT_SUFFIX, BOUND_SUFFIX, MAX_SIZE_SUFFIX]
        .into_iter()
        .find_map(|suffix| {
            let of = |s: &&&str| {
                s.strip_suffix(suffix)
                    .is_some_and(|n| name::is_valid(n) && !has(n, MAIN_SUFFIX))
            };
            defined
                .iter()
                .find(of)
                .map(|s| (*s, s.strip_suffix(suffix).unwrap_or_default()))
        });
    if let Some((symbol, name)) = orphan {
        return Err(error(
            format!("`{symbol}` is there, `{name}{MAIN_SUFFIX}` is not"),
            format!(
                "define `void {name}{MAIN_SUFFIX}(void *payload, size_t payload_size, void *target_args)`: the part that travels"
            ),
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(symbols: &[&str]) -> Result<Vec<(String, &'static str)>, String> {
        from_symbols(Path::new("x.c"), symbols)
            .map(|all| all.into_iter().map(|i| (i.name, i.convention.name())).collect())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn the_other_symbol_selects_the_argument_order() {
        let all = found(&[
            "a_main",
            "a_payload_init",
            "a_payload_bound",
            "b_main",
            "b_payload_init",
            "b_payload_get_max_size",
            "help",
        ]);
        assert_eq!(all, Ok(vec![("a".into(), "bound"), ("b".into(), "max-size")]));
        assert_eq!(found(&["main", "util"]), Ok(vec![]), "a file of helpers");
    }

    #[test]
    fn marks_state_what_main_is() {
        let symbols = |mark| ["a_main", "a_payload_init", "a_payload_bound", mark];
        let marked = |mark| {
            let found = from_symbols(Path::new("x.c"), &symbols(mark)).unwrap();
            (found[0].returns_status, found[0].shareable, found[0].idempotent)
        };
        assert_eq!(marked("a_main_returns_status"), (true, false, false));
        assert_eq!(marked("a_main_is_shareable"), (false, true, false));
        assert_eq!(marked("a_main_is_idempotent"), (false, false, true));
        assert_eq!(marked("b_main_is_shareable"), (false, false, false));
    }

    #[test]
    fn half_an_ifunc_is_an_error() {
        let says = |symbols: &[&str], what: &str| {
            let error = found(symbols).unwrap_err();
            assert!(error.contains(what), "{error}");
        };
        says(&["a_main", "a_payload_bound"], "`a_payload_init` is not");
        says(
            &["a_main", "a_payload_init"],
            "neither `a_payload_bound` nor `a_payload_get_max_size`",
        );
        says(
            &[
                "a_main",
                "a_payload_init",
                "a_payload_bound",
                "a_payload_get_max_size",
            ],
            "both",
        );
        says(&["a_payload_init", "a_payload_bound"], "`a_main` is not");
    }
}

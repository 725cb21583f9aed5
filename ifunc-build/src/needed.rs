//! Shared libraries that an ifunc needs on its target.

use ifunc_abi::name;

use crate::BuildError;

/// The sonames of the settings, each once.
pub(crate) fn sonames(requested: &[String]) -> Result<Vec<&str>, BuildError> {
    let mut sonames: Vec<&str> = Vec::new();
    for soname in requested {
        let reason = if soname.contains('/') {
            "it is a path, and a target looks for the library where its loader does"
        } else if soname.len() > name::MAX_SONAME {
            "it is longer than the name of any file"
        } else if !name::is_valid_soname(soname) {
            "it is not the name of a file in ASCII without blanks"
        } else if !soname.contains(".so") {
            "names of shared libraries have `.so` in them"
        } else {
            if !sonames.contains(&&**soname) {
                sonames.push(soname);
            }
            continue;
        };
        return Err(BuildError::Needed {
            soname: soname.clone(),
            reason,
        });
    }
    Ok(sonames)
}

#[cfg(test)]
mod tests {
    use super::sonames;

    #[test]
    fn a_soname_is_a_name_and_stands_once() {
        let of = |requested: &[&str]| {
            let requested: Vec<String> = requested.iter().map(|&soname| soname.into()).collect();
            sonames(&requested)
                .map(|found| found.join(" "))
                .map_err(|error| error.to_string())
        };
        assert_eq!(of(&[]), Ok(String::new()));
        assert_eq!(
            of(&["libz.so.1", "libm.so.6", "libz.so.1"]),
            Ok("libz.so.1 libm.so.6".into())
        );
        let long = format!("lib{}.so", "x".repeat(250));
        for (soname, what) in [
            ("/usr/lib/libz.so.1", "path"),
            ("", "not the name of a file"),
            ("lib z.so", "not the name of a file"),
            ("z", "have `.so`"),
            ("-lz", "have `.so`"),
            (&*long, "longer"),
        ] {
            let error = of(&[soname]).unwrap_err();
            assert!(
                error.contains(what) && error.contains("help: ") && error.contains("libz.so.1"),
                "{error}"
            );
        }
    }
}

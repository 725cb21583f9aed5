//! `cargo ifunc verify`

use std::path::Path;

use ifunc_abi::ImageId;
use ifunc_rt::keys::{PublicKey, Signature, Signatures};

use super::sign::{ids_of, signatures_of};
use crate::cli::VerifyArgs;
use crate::error::Failure;
use crate::shell::Shell;

pub(crate) fn run(args: &VerifyArgs, shell: &mut Shell) -> Result<(), Failure> {
    let keys = args.key.iter().map(PublicKey::read);
    let keys: Vec<(PublicKey, String)> = keys.collect::<Result<_, _>>()?;
    let mut problems = Vec::new();
    for file in &args.files {
        let beside = args.signatures.clone().unwrap_or_else(|| signatures_of(file));
        let signatures = match beside.exists() {
            true => Signatures::read(&beside)?,
            false => Signatures::default(),
        };
        for (name, id) in ids_of(file)? {
            match verified(&signatures, &id, &keys) {
                Ok((signature, who)) => {
                    let who = who.map_or_else(|| signature.key().to_string(), str::to_owned);
                    shell.status(
                        "Verified",
                        format_args!("{name} in {}, signed by {who}", file.display()),
                    );
                }
                Err(why) => problems.push(problem(&name, file, &beside, why)),
            }
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::Message(problems.join("\n"))),
    }
}

/// The signature of an image that is valid, and of one of these keys if there are any.
fn verified<'a>(
    signatures: &'a Signatures,
    id: &ImageId,
    keys: &'a [(PublicKey, String)],
) -> Result<(&'a Signature, Option<&'a str>), &'static str> {
    let mut why = "is not signed";
    for signature in signatures.iter().filter(|signature| signature.image() == id) {
        let known = keys.iter().find(|(key, _)| *key == signature.key());
        if known.is_none() && !keys.is_empty() {
            why = "is signed by another key";
        } else if signature.verify().is_err() {
            return Err("has a signature that is wrong");
        } else {
            return Ok((
                signature,
                known.map(|(_, name)| &**name).filter(|name| !name.is_empty()),
            ));
        }
    }
    Err(why)
}

fn problem(name: &str, file: &Path, beside: &Path, why: &str) -> String {
    format!(
        "`{name}` in `{}` {why}: looked in `{}`\nhelp: `cargo ifunc sign --key KEY {}`",
        file.display(),
        beside.display(),
        file.display()
    )
}

//! `cargo ifunc keygen`

use std::path::Path;

use ifunc_rt::keys::SecretKey;

use super::certify;
use crate::cli::KeygenArgs;
use crate::error::Failure;
use crate::shell::Shell;

pub(crate) fn run(args: &KeygenArgs, shell: &mut Shell) -> Result<(), Failure> {
    let name = args.path.file_name().and_then(|name| name.to_str());
    let Some(name) = name.filter(|name| !name.starts_with('-')) else {
        return Err(Failure::Usage(format!(
            "`{}` names no key\nhelp: write a name, such as `builds`: the files are builds.key and builds.pub",
            args.path.display()
        )));
    };
    let key = SecretKey::generate(name).map_err(Failure::io("read", "/dev/urandom"))?;
    let beside = |extension: &str| {
        let mut path = args.path.clone().into_os_string();
        path.push(extension);
        path
    };
    let (secret, public, certificate) = (beside(".key"), beside(".pub"), beside(".pem"));
    let pem = match &args.by {
        Some(by) => Some(certify::certificate(&key, &args.certificate, args.days, by)?),
        None => args.ca.then(|| certify::authority(&key)).transpose()?,
    };
    let written = [Some(&secret), Some(&public), pem.as_ref().map(|_| &certificate)];
    let exists = written
        .into_iter()
        .flatten()
        .find(|path| Path::new(path).exists());
    if let Some(path) = exists {
        return Err(Failure::Message(format!(
            "`{}` exists\nhelp: choose another name, or move the key elsewhere: images that it signed need it no longer",
            Path::new(path).display()
        )));
    }
    key.write_new(&secret)?;
    key.public().write(&public, name)?;
    shell.status(
        "Generated",
        format_args!("{} ({})", Path::new(&secret).display(), key.public()),
    );
    if let Some(pem) = pem {
        std::fs::write(&certificate, pem).map_err(Failure::io("write", &certificate))?;
        let path = Path::new(&certificate).display();
        match args.ca {
            true => shell.status(
                "Written",
                format_args!("{path}, for policies and for IFUNC_TLS_AUTHORITY"),
            ),
            false => shell.status("Written", format_args!("{path}, for IFUNC_TLS_CERTIFICATE")),
        }
    }
    shell.status(
        "Written",
        format_args!("{}, for the policies of targets", Path::new(&public).display()),
    );
    Ok(())
}

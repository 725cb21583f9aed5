//! The roles of the soak, each in a process of its own.

use ifunc_tests::role::Role;

use super::options::{Options, address};

/// The C library's allocator gives large blocks back at once. Otherwise what is in use is hidden by what lies between blocks
/// that are, which grows with every record of what was in use, for hours.
const MEMORY: [(&str, &str); 2] = [
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
];

/// Starts a role with these arguments.
pub(super) fn start(options: &Options, role: &str, args: &[(&str, String)]) -> Result<Role, String> {
    start_with(options, role, args, &[])
}

/// As [`start`], with these variables in its environment.
pub(super) fn start_with(
    options: &Options,
    role: &str,
    args: &[(&str, String)],
    environment: &[(&str, &str)],
) -> Result<Role, String> {
    let libraries = ("libraries", options.libraries.display().to_string());
    let args = std::iter::once(&libraries).chain(args);
    let args: Vec<String> = args.map(|(name, value)| format!("{name}={value}")).collect();
    let words = std::iter::once(role).chain(args.iter().map(String::as_str));
    Role::start(&words.collect::<Vec<_>>(), |command| {
        command
            .env("IFUNC_RUNTIME_DIR", &options.folders.sockets)
            .envs(MEMORY)
            .envs(environment.iter().copied())
            .env("UCX_POSIX_DIR", &options.folders.memory);
    })
}

/// Starts a target; its address.
pub(super) fn target(
    options: &Options,
    transport: &str,
    name: &str,
    images: usize,
) -> Result<(Role, String), String> {
    target_with(options, transport, name, images, &[])
}

/// As [`target`], with these variables in its environment.
pub(super) fn target_with(
    options: &Options,
    transport: &str,
    name: &str,
    images: usize,
    environment: &[(&str, &str)],
) -> Result<(Role, String), String> {
    let address =
        address(transport, name).ok_or_else(|| format!("`{transport}` is no transport of this build"))?;
    let args = [("address", address), ("images", images.to_string())];
    let mut target = start_with(options, "target", &args, environment)?;
    let address = target.wait_for("ready ")?;
    Ok((target, address))
}

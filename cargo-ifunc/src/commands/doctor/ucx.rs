//! UCX, which networks need: its version, what it found on this machine, and what keeps it from being fast.

use ucx::{Features, Library};

use super::finding::{Finding, setting};

/// Versions before this one are known to let puts be seen in another order than they were made in.
const PUTS_IN_ORDER: (u32, u32) = (1, 16);

pub(super) fn checks() -> Vec<Finding> {
    let name = "UCX";
    let ucx = match Library::load() {
        Ok(ucx) => ucx,
        Err(error) => {
            let error = error.to_string();
            let (found, help) = error.split_once("\nhelp: ").unwrap_or((&error, ""));
            let help = format!("only networks need it: {help}");
            return vec![Finding::none(name, found, help)];
        }
    };
    let version = ucx.version();
    let mut findings = vec![Finding::ok(name, version.to_string()), trust()];
    findings.extend(put_order((version.major, version.minor)));
    let resources = resources(ucx);
    let puts = std::env::var_os("IFUNC_TRANSPORT").is_some_and(|value| value == "ucx-put");
    if puts && let Ok(resources) = &resources {
        findings.extend(puts_without_hardware(resources));
    }
    findings.push(transports(resources.as_deref()));
    findings.push(cma(
        resources.is_ok_and(|resources| resources.iter().any(|resource| resource == "cma/memory")),
        setting("kernel/yama/ptrace_scope"),
    ));
    findings
}

/// What no setting of UCX or ifunc changes.
fn trust() -> Finding {
    Finding::none(
        "UCX trust",
        "UCX's own port of a `ucx://` target authenticates nobody and encrypts nothing: a process that reaches it can write to the target's memory, or end it",
        "run such targets on a network that only machines reach which trust each other, give them keys (IFUNC_TLS_KEY), and use `tls://` elsewhere",
    )
}

fn put_order(version: (u32, u32)) -> Option<Finding> {
    let (major, minor) = PUTS_IN_ORDER;
    (version < PUTS_IN_ORDER).then(|| {
        Finding::warning(
            "UCX puts",
            format!("before {major}.{minor}, puts may be seen in another order than they were made in"),
            "`ucx-put` does not rely on it: a short frame has a checksum, and a longer one is fenced; programs of yours that put need a fence, too",
        )
    })
}

/// What `ucx-put` between hosts is, where this host has no device that puts by itself.
fn puts_without_hardware(resources: &[impl AsRef<str>]) -> Option<Finding> {
    // InfiniBand and RoCE, Cray and EFA.
    let hardware = ["rc_", "dc_", "ugni_", "srd"];
    let puts = |resource: &str| hardware.iter().any(|name| resource.starts_with(name));
    (!resources.iter().any(|resource| puts(resource.as_ref()))).then(|| {
        Finding::warning(
            "UCX ucx-put",
            "no RDMA device: between hosts, puts are messages over TCP, and UCX 1.13 may end a process whose peer has died",
            "`IFUNC_TRANSPORT=ucx`, or addresses `ucx://`, which are also faster over TCP",
        )
    })
}

/// The transports and devices, such as `tcp/eth0`, that UCX finds with its default settings and those of the environment.
fn resources(ucx: Library) -> Result<Vec<String>, String> {
    let context = ucx
        .config()
        .and_then(|config| ucx.context(&config, Features::AM))
        .map_err(|error| error.status.to_string())?;
    Ok(context.resources())
}

fn transports(resources: Result<&[String], &String>) -> Finding {
    let name = "UCX transports";
    match resources {
        Ok(resources) if !resources.is_empty() => Finding::ok(name, resources.join(" ")),
        Ok(_) => Finding::none(
            name,
            "UCX does not say",
            "`ucx_info -d` lists them: `apt-get install ucx-utils` (Debian)",
        ),
        Err(error) => Finding::warning(
            name,
            format!("UCX cannot be started: {error}"),
            "`UCX_LOG_LEVEL=info` tells more; `UCX_TLS` and `UCX_NET_DEVICES` leave it something",
        ),
    }
}

/// Whether UCX can copy between processes through the kernel.
fn cma(found: bool, scope: Option<i64>) -> Finding {
    let name = "UCX cma";
    match (found, scope.unwrap_or(0)) {
        (true, 0) => Finding::ok(
            name,
            "large payloads are copied once between processes of this host",
        ),
        (_, scope @ 1..) => Finding::none(
            name,
            format!("kernel.yama.ptrace_scope = {scope}: processes may not copy from each other"),
            "UCX copies large payloads through shared memory instead, twice: `sysctl -w kernel.yama.ptrace_scope=0`",
        ),
        _ => Finding::none(
            name,
            "not among UCX's transports",
            "UCX copies large payloads through shared memory instead, twice; a container needs `process_vm_readv` (CAP_SYS_PTRACE) for it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Mark;
    use super::*;

    #[test]
    fn transports_are_listed() {
        let resources = ["self/memory".to_owned(), "tcp/lo".to_owned()];
        assert_eq!(transports(Ok(&resources)).found, "self/memory tcp/lo");
        assert_eq!(transports(Ok(&[])).mark, Mark::None);
        assert_eq!(transports(Err(&"No such device".into())).mark, Mark::Warning);
    }

    #[test]
    fn what_is_slow_or_out_of_order_is_told() {
        let trust = trust();
        assert!(trust.mark == Mark::None && trust.help.is_some_and(|help| help.contains("tls://")));
        assert!(put_order((1, 13)).is_some_and(|finding| finding.mark == Mark::Warning));
        assert_eq!(put_order((1, 16)), None);
        assert_eq!(put_order((2, 0)), None);
        assert_eq!(puts_without_hardware(&["tcp/lo", "rc_mlx5/mlx5_0:1"]), None);
        let finding = puts_without_hardware(&["self/memory", "tcp/eth0", "sysv/memory"]).expect("a warning");
        assert!(finding.mark == Mark::Warning && finding.help.is_some_and(|help| help.contains("ucx://")));
        assert_eq!(cma(true, None).mark, Mark::Ok);
        assert!(cma(true, Some(1)).found.contains("ptrace_scope = 1"));
        assert_eq!(cma(false, Some(0)).mark, Mark::None);
    }
}

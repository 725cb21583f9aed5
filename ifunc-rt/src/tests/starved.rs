//! What the machine refuses. Each role is a process of its own: it has another environment, or too few descriptors, or too
//! little memory.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::{Resource, Rlimit, geteuid, setrlimit};
use rustix::thread::set_thread_res_uid;

use super::futures::block_on;
use super::images::{self, Add};
use super::logs::Log;
use super::running::{accepting, unique};
use crate::rendezvous::{Rendezvous, RendezvousError};
#[cfg(feature = "ucx")]
use crate::ucx::{Worker, WorkerError, WorkerOptions};
use crate::{
    ConnectError, Error, ListenError, Policy, RawType, ServeEnd, Source, SourceError, SourceOptions, Target,
    TargetError, TooManyTypes,
};

/// Which role a process has.
const ROLE: &str = "IFUNC_TEST_STARVED";

/// Runs a role in a process whose environment has these variables. What the role asserts is asserted here.
#[track_caller]
fn in_process(role: &str, variables: &[(&str, &Path)]) {
    let test = concat!(module_path!(), "::child").split_once("::").unwrap().1;
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
#[ignore = "role: a part of the other tests here"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.as_str() {
        "variables" => variables(),
        "open folder" => open_folder(),
        "taken paths" => taken_paths(),
        "another user" => another_user(),
        "descriptors" => descriptors(),
        "memory" => memory(),
        #[cfg(feature = "ucx")]
        "no UCX" => no_ucx(),
        #[cfg(feature = "ucx")]
        "no network" => no_network(),
        #[cfg(feature = "ucx")]
        "no transport" => no_transport(),
        role => panic!("no role {role}"),
    }
}

/// A folder for sockets.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(unique("starved").replace(':', "-"));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn says(error: &dyn std::error::Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// Connects, and does not wait for a target to start.
fn connect(address: &str) -> Result<Source, SourceError> {
    Source::connect_with(
        address,
        SourceOptions::default().connect_timeout(Duration::from_millis(1)),
    )
}

fn refused(address: &str) -> (ListenError, ConnectError) {
    match (accepting().listen(address), connect(address)) {
        (Err(TargetError::Listen(listening)), Err(SourceError::Connect(connecting))) => {
            (listening, connecting)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_variable_that_is_no_number_is_named() {
    in_process("variables", &[("IFUNC_CREDITS", Path::new("many"))]);
}

fn variables() {
    let error = accepting().listen(&unique("loopback")).unwrap_err();
    assert!(
        matches!(
            error,
            TargetError::Environment {
                name: "IFUNC_CREDITS",
                ..
            }
        ),
        "{error:?}"
    );
    says(&error, &["IFUNC_CREDITS=many is not a number", "help: unset it"]);

    let stated: Vec<_> = (0..65)
        .map(|number| RawType::stated(&format!("type {number}")))
        .collect();
    let [.., Ok(_), Err(error @ TooManyTypes { .. })] = &stated[..] else {
        panic!("{:?}", stated.last())
    };
    says(
        error,
        &[
            "`type 64` is not one of the first 64 types",
            "help: state each type once",
        ],
    );

    let error = Rendezvous::from_env("job").unwrap_err();
    assert!(matches!(error, RendezvousError::NoPlace), "{error:?}");
    says(
        &error,
        &[
            "nowhere to exchange their addresses",
            "help: set IFUNC_RENDEZVOUS",
        ],
    );
}

#[test]
fn a_folder_in_which_others_may_listen_is_not_used() {
    let folder = Folder::new();
    fs::set_permissions(&folder.0, Permissions::from_mode(0o777)).unwrap();
    in_process("open folder", &[("IFUNC_RUNTIME_DIR", &folder.0)]);
}

fn open_folder() {
    let (listening, connecting) = refused("shm:counter");
    assert!(
        matches!(listening, ListenError::Directory { .. }),
        "{listening:?}"
    );
    assert!(
        matches!(connecting, ConnectError::Directory { .. }),
        "{connecting:?}"
    );
    let parts = [
        "cannot hold sockets",
        "every user can write to it",
        "help: chmod o-w",
    ];
    says(&listening, &parts);
    says(&connecting, &parts);
}

#[test]
fn what_lies_at_the_path_of_a_socket_is_reported() {
    let folder = Folder::new();
    in_process("taken paths", &[("IFUNC_RUNTIME_DIR", &folder.0)]);
}

fn taken_paths() {
    let folder = PathBuf::from(std::env::var_os("IFUNC_RUNTIME_DIR").unwrap());
    // A folder in place of the lock, and a socket of another type.
    fs::create_dir(folder.join("taken.lock")).unwrap();
    let _other = UnixListener::bind(folder.join("taken.sock")).unwrap();
    let (listening, connecting) = refused("shm:taken");
    assert!(matches!(listening, ListenError::Io { .. }), "{listening:?}");
    says(&listening, &["locking `", "taken.lock`: Is a directory"]);
    assert!(matches!(connecting, ConnectError::Io { .. }), "{connecting:?}");
    says(&connecting, &["shm:taken: connecting to `", "taken.sock`: "]);

    let root = geteuid();
    if !root.is_root() {
        return eprintln!("not tested as another user: only root can become one");
    }
    // The kernel reports the user that a socket began to listen as.
    const OTHER: u32 = 65534;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    bind(&socket, &SocketAddrUnix::new(folder.join("theirs.sock")).unwrap()).unwrap();
    let become_user = |user| set_thread_res_uid(root, user, root).unwrap();
    become_user(rustix::process::Uid::from_raw(OTHER));
    listen(&socket, 1).unwrap();
    become_user(root);
    match connect("shm:theirs").unwrap_err() {
        SourceError::Connect(error @ ConnectError::OtherUser { uid: OTHER, .. }) => {
            says(
                &error,
                &[
                    "`shm:theirs` belongs to user 65534",
                    "help: `SourceOptions::other_users`",
                ],
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_of_another_user_connects_only_if_the_policy_names_it() {
    let folder = Folder::new();
    in_process("another user", &[("IFUNC_RUNTIME_DIR", &folder.0)]);
}

fn another_user() {
    const OTHER: u32 = 65534;
    let root = geteuid();
    if !root.is_root() {
        return eprintln!("not tested as another user: only root can become one");
    }
    // The thread that watches sockets decides, and logs.
    let log = Log::new(tracing::Level::WARN);
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let connects = |policy: Policy| {
        let address = unique("shm");
        let mut target = Target::builder().policy(policy).listen(&address).unwrap();
        let source = std::thread::spawn(move || {
            set_thread_res_uid(root, rustix::process::Uid::from_raw(OTHER), root).unwrap();
            // The folder is root's: the kernel lets this thread in, and reports it as the other user.
            // SAFETY: changes by which user this thread opens files.
            unsafe { libc::setfsuid(root.as_raw()) };
            let patience = Duration::from_secs(20);
            let options = SourceOptions::default()
                .connect_timeout(patience)
                .timeout(patience);
            Source::connect_with(&address, options).map(drop)
        });
        while !source.is_finished() {
            target.poll(&mut 0u64);
        }
        source.join().unwrap()
    };
    match connects(Policy::new().connect_users([7])).unwrap_err() {
        SourceError::Connect(error @ ConnectError::Refused { .. }) => {
            says(
                &error,
                &["processes of user 0", "user 65534", "`Policy::connect_users`"],
            );
        }
        other => panic!("{other:?}"),
    }
    let lines = log.lines();
    let [line] = &lines[..] else {
        panic!("one line is expected: {lines:#?}");
    };
    assert!(
        line.contains("does not admit its user") && line.contains("uid=65534"),
        "{line}"
    );
    connects(Policy::new().connect_users([OTHER])).unwrap();
    connects(Policy::new().connect_any_user()).unwrap();
    assert_eq!(log.lines().len(), 1);
}

#[test]
fn too_few_descriptors_are_an_error_of_whatever_needs_one_more() {
    in_process("descriptors", &[]);
}

fn descriptors() {
    #[cfg(feature = "ucx")]
    let has_ucx = ::ucx::Library::load().is_ok();
    // The hard limit too: the runtime raises the soft one.
    let most = Some(64);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: most,
            maximum: most,
        },
    )
    .unwrap();
    let mut held = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        held.push(file);
    }
    let mut seen = BTreeSet::new();
    let mut see = |name: &'static str, error: &dyn std::error::Error| {
        says(error, &["Too many open files"]);
        seen.insert(name);
    };
    #[cfg(feature = "ucx")]
    if has_ucx {
        let error = lend_nothing();
        assert!(matches!(error, WorkerError::Os(_)), "{error:?}");
        see("lend", &error);
    }
    // Each time there is one more.
    loop {
        match accepting().listen(&unique("shm")) {
            Ok(_) => break,
            Err(TargetError::Listen(error @ ListenError::Io { .. })) => see("listen", &error),
            Err(error @ TargetError::Os { .. }) => see("target", &error),
            Err(other) => panic!("{other:?}"),
        }
        held.pop().unwrap();
    }
    while let Ok(file) = File::open("/dev/null") {
        held.push(file);
    }
    loop {
        let address = unique("loopback");
        let target = accepting().listen(&address);
        match target.as_ref().map(|_| connect(&address)) {
            Ok(Ok(_)) => break,
            Ok(Err(SourceError::Connect(error @ (ConnectError::Io { .. } | ConnectError::Busy { .. })))) => {
                let name = if matches!(error, ConnectError::Io { .. }) {
                    "connect"
                } else {
                    "busy"
                };
                see(name, &error);
            }
            Err(error) => says(error, &["Too many open files"]),
            Ok(other) => panic!("{other:?}"),
        }
        held.pop().unwrap();
    }
    seen.remove("lend");
    assert_eq!(Vec::from_iter(seen), ["busy", "connect", "listen", "target"]);
}

#[test]
fn too_little_memory_for_a_thread_or_a_stack_is_an_error() {
    in_process("memory", &[]);
}

fn memory() {
    const STACK: usize = 256 << 20;
    let image = images::add().encode().unwrap();
    let address = unique("loopback");
    let _target = accepting().listen(&address).unwrap();
    let source = Source::connect(&address).unwrap();
    let add = source.register_bytes::<Add>(&image).unwrap();
    // SAFETY: no source connects.
    let policy = unsafe { Policy::trust_every_peer() }.stack(STACK);
    let stacked = Target::builder()
        .policy(policy)
        .listen(&unique("loopback"))
        .unwrap();

    // Nothing is left for the stack of a thread.
    let allow = |more: u64| {
        let pages = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        let current = Some(pages * 4096 + more);
        setrlimit(
            Resource::As,
            Rlimit {
                current,
                maximum: None,
            },
        )
        .unwrap();
    };
    allow(1 << 16);
    let error = block_on(add.call_async(&5)).unwrap_err();
    assert!(matches!(error, Error::NoThread { .. }), "{error:?}");
    says(
        &error,
        &[
            "`add` cannot be awaited: no thread",
            "help: `Source::driver` needs none",
        ],
    );

    // There is for a thread, and not for the stack of its ifuncs.
    allow(STACK as u64 / 2);
    let error = stacked.spawn(5u64).unwrap().stop().unwrap_err();
    let ServeEnd::Target(TargetError::Os { what, .. }) = &error.why else {
        panic!("{error:?}")
    };
    assert_eq!((*what, error.value), ("map a stack for injected code", 5));
    says(
        &error,
        &["stopped serving: cannot map a stack for injected code: "],
    );
    allow(1 << 40);
}

#[cfg(feature = "ucx")]
#[test]
fn a_machine_without_ucx_says_how_to_install_it() {
    let folder = Folder::new();
    fs::write(folder.0.join("libucp.so.0"), "not a library").unwrap();
    in_process("no UCX", &[("LD_LIBRARY_PATH", &folder.0)]);
}

/// Lends what is refused before the runtime uses it.
#[cfg(feature = "ucx")]
fn lend_nothing() -> WorkerError {
    let (context, worker) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: without UCX, or without a descriptor, nothing is done with them.
    let lent = unsafe { Worker::from_raw(context, worker, WorkerOptions::new(9)) };
    lent.map(drop).unwrap_err()
}

#[cfg(feature = "ucx")]
fn no_ucx() {
    let (listening, connecting) = refused("ucx://127.0.0.1:0");
    assert!(matches!(listening, ListenError::Library { .. }), "{listening:?}");
    assert!(
        matches!(connecting, ConnectError::Library { .. }),
        "{connecting:?}"
    );
    let lent = lend_nothing();
    assert!(matches!(lent, WorkerError::Library(_)), "{lent:?}");
    for error in [&listening as &dyn std::error::Error, &connecting, &lent] {
        says(error, &["cannot open `libucp.so.0` of UCX", "help: install it"]);
    }
}

/// The address of a worker that this process reaches by no transport.
#[cfg(feature = "ucx")]
const WORKER: &str = "IFUNC_TEST_WORKER";

#[cfg(feature = "ucx")]
#[test]
fn what_ucx_refuses_is_in_its_own_words() {
    if super::running::between_processes().contains(&"ucx") {
        let target = accepting().listen("ucx-worker:").unwrap();
        let worker = target.address();
        in_process(
            "no network",
            &[("UCX_TLS", Path::new("self")), (WORKER, Path::new(&worker))],
        );
        in_process("no transport", &[("UCX_TLS", Path::new("none-such"))]);
    }
}

#[cfg(feature = "ucx")]
fn no_transport() {
    let (listening, connecting) = refused("ucx://127.0.0.1:0");
    assert!(matches!(listening, ListenError::Ucx { .. }), "{listening:?}");
    assert!(matches!(connecting, ConnectError::Ucx { .. }), "{connecting:?}");
    says(&listening, &["UCX says: "]);
}

#[cfg(feature = "ucx")]
fn no_network() {
    // An address of documentation, which no interface has.
    let listening = match accepting().listen("ucx://192.0.2.1:0") {
        Err(TargetError::Listen(error @ ListenError::Io { .. })) => error,
        other => panic!("{other:?}"),
    };
    says(&listening, &["listening at `ucx://192.0.2.1:0`: "]);
    let worker = std::env::var(WORKER).unwrap();
    let (listening, connecting) = refused(&worker);
    assert!(matches!(listening, ListenError::Worker), "{listening:?}");
    says(
        &listening,
        &[
            "cannot listen at the address of another worker",
            "help: listen at `ucx-worker:`",
        ],
    );
    assert!(matches!(connecting, ConnectError::Ucx { .. }), "{connecting:?}");
    says(&connecting, &["connecting by UCX: UCX says: ", "help: "]);
}

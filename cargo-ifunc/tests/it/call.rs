//! `call`: which library it takes, and answers in parts.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ifunc_rt::group::Group;
use ifunc_rt::{Policy, Target};

use crate::common::{Killed, Ran, command, ifunc, ran, write};

/// `cargo ifunc call` by the command at this path.
fn call(command: &Path, folder: &Path) -> Ran {
    let mut command = Command::new(command);
    command
        .args(["ifunc", "call", "shm:nobody-listens-here", "add"])
        .current_dir(folder)
        .stdin(Stdio::null());
    for name in ["CARGO_TARGET_DIR", "IFUNC_LIB_DIR", "UCX_IFUNC_LIB_DIR"] {
        command.env_remove(name);
    }
    ran(&mut command)
}

#[test]
fn the_library_is_that_of_the_workspace_and_not_one_beside_the_command() {
    // In the file system of the command, which gets a second name there.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("folder");
    let (of_command, project) = (folder.path().join("checkout"), folder.path().join("project"));
    let manifest = "[workspace]\n";
    let library = "target/ifunc/release/add.so";
    write(
        &of_command,
        &[("Cargo.toml", manifest), (library, "of the checkout")],
    );
    write(
        &project,
        &[
            ("Cargo.toml", manifest),
            (library, "of the project"),
            ("src/deep/main.rs", ""),
        ],
    );
    let command = of_command.join("target/debug/cargo-ifunc");
    std::fs::create_dir(of_command.join("target/debug")).expect("folder");
    std::fs::hard_link(env!("CARGO_BIN_EXE_cargo-ifunc"), &command).expect("link");

    let within = project.join("src/deep");
    let read = format!("`{}`", project.join(library).display());
    for place in [&project, &within] {
        call(&command, place).failed(1, &[&read]);
    }
    std::fs::remove_dir_all(project.join("target")).expect("folder");
    let searched = format!(
        "no library `add.so`; looked in: `{}`\n",
        project.join("target/ifunc/release").display()
    );
    call(&command, &within).failed(1, &[&searched]);
}

/// Answers in as many parts as its payload says, but in no more than the target's number allows now, and then goes on at the same
/// node.
const PARTS: &str = r#"
#include <ifunc.h>

struct count {
    uint32_t next, to;
};

IFUNC_PAYLOAD_BOUND(parts);
IFUNC_MAIN_WITH_CONTEXT(parts);

size_t parts_payload_bound(void *args, size_t n)
{
    (void)args;
    return n;
}

int parts_payload_init(void *args, size_t n, void *payload, size_t *size)
{
    __builtin_memcpy(payload, args, n);
    *size = n;
    return 0;
}

uint32_t parts_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)
{
    struct count count;
    const uint64_t *allowed = target_args;
    if (payload_size != sizeof count)
        return IFUNC_BAD_PAYLOAD;
    __builtin_memcpy(&count, payload, sizeof count);
    for (; count.next < count.to && count.next < *allowed; count.next++) {
        char part[] = "part 0";
        part[5] += (char)(count.next % 10);
        if (ifunc_reply(ctx, part, sizeof part - 1))
            return IFUNC_BAD_ANSWER;
    }
    if (count.next < count.to)
        return ifunc_forward(ctx, __ifunc_travel(ctx)->node, parts, &count, sizeof count) ? IFUNC_BAD_ANSWER : IFUNC_OK;
    return ifunc_answer(ctx, "the end", 7);
}
"#;

#[test]
fn each_part_of_an_answer_is_printed_when_it_arrives() {
    let folder = tempfile::tempdir().expect("folder");
    let payload = [0_u32.to_ne_bytes(), 4_u32.to_ne_bytes()].concat();
    write(folder.path(), &[("parts.c", PARTS)]);
    std::fs::write(folder.path().join("payload"), payload).expect("file");
    ifunc(folder.path(), &["build", "parts.c", "--target-dir", "built"]).succeeded();

    let address = format!("shm:parts-{}", std::process::id());
    // SAFETY: the ifunc above, from a process of this user.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(&address).expect("a target");
    let _group = target.join(Group::new(0)).expect("a group of its own");
    // Returns the next line that the command prints, and `None` after the last one.
    let call = |more: &[&str]| {
        let args = ["call", &address, "built/release/parts.so", "--raw", "payload"];
        let mut child = command(folder.path(), &[&args, more].concat())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (send, lines) = channel();
        std::thread::spawn(move || out.lines().try_for_each(|line| send.send(line.expect("text"))));
        (Killed(child), lines)
    };
    let mut serve_until = |allowed: u64, done: &mut dyn FnMut() -> bool| {
        let mut allowed = allowed;
        let deadline = Instant::now() + Duration::from_secs(30);
        while !done() {
            assert!(Instant::now() < deadline, "nothing arrived");
            target.poll(&mut allowed);
            // Each visit of the waiting call is a hop, of which a call has 65,535.
            std::thread::sleep(Duration::from_millis(1));
        }
    };

    let (_command, lines) = call(&[]);
    let mut said = Vec::new();
    for allowed in [1, 3] {
        serve_until(allowed, &mut || {
            said.extend(lines.try_iter());
            said.len() as u64 >= allowed
        });
        assert_eq!(said.len() as u64, allowed, "{said:?}");
    }
    serve_until(4, &mut || {
        said.extend(lines.try_iter());
        said.len() == 5
    });
    assert_eq!(
        said,
        [
            "\"part 0\"",
            "\"part 1\"",
            "\"part 2\"",
            "\"part 3\"",
            "\"the end\""
        ]
    );

    // The bytes of all of them, one after the other.
    let (mut command, _) = call(&["--output", "bytes"]);
    serve_until(4, &mut || command.0.try_wait().expect("a status").is_some());
    let bytes = std::fs::read_to_string(folder.path().join("bytes")).expect("file");
    assert_eq!(bytes, "part 0part 1part 2part 3the end");
}

//! `ifunc.h`: its declarations match the ABI, and functions with other prototypes do not compile.

use std::fs;

use crate::common::files::Files;
use ifunc_abi::image::{EntryFlags, Image, ImportFlags, ImportKind};
use ifunc_build::{COptions, Quiet, build_c};

/// `ifunc.h` as authors use it.
const WITH_HEADER: &str = r#"
#include <ifunc.h>
IFUNC_PAYLOAD_BOUND(headed);
IFUNC_MAIN_WITH_CONTEXT(headed);
IFUNC_SHAREABLE(headed);
IFUNC_IDEMPOTENT(headed);
IFUNC_IMPORT(uint64_t, of_the_target, uint64_t x);
IFUNC_IMPORT_IF_THERE(void, perhaps, void);
IFUNC_IMPORT_DATA(uint64_t, level);
IFUNC_IMPORT_DATA_IF_THERE(const char *, label);
IFUNC_ASSERT_PROTOTYPE(of_the_target, uint64_t, uint64_t);
IFUNC_ASSERT_LAYOUT(uint64_t, 8, 8);

size_t headed_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    return n;
}
int headed_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    (void)source_args;
    (void)payload;
    *payload_size = n;
    return 0;
}
uint32_t headed_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)
{
    extern const uint64_t bare;
    uint64_t answer = of_the_target(ifunc_sender(ctx)) + bare + level;
    if (&label)
        answer++;
    (void)payload;
    (void)target_args;
    ifunc_log(ctx, IFUNC_LOG_INFO, "called");
    return payload_size ? IFUNC_BAD_PAYLOAD : ifunc_answer(ctx, &answer, sizeof answer);
}
"#;

/// The compilers of the machine; `cc` always.
fn compilers() -> Vec<String> {
    let there = |compiler: &str| {
        let version = std::process::Command::new(compiler).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let clang = there("clang").then(|| "clang".to_owned());
    std::iter::once("cc".to_owned()).chain(clang).collect()
}

#[test]
fn the_header_is_there_and_compiles_without_warnings() {
    let files = Files::new(&[("headed.c", WITH_HEADER)]);
    for compiler in compilers() {
        for standard in ["-std=c11", "-std=gnu17"] {
            let options = COptions {
                compiler: Some(compiler.clone()),
                cflags: [standard, "-Wall", "-Wextra", "-pedantic", "-Werror"]
                    .map(Into::into)
                    .into(),
                ..files.options()
            };
            let built = files.build_with(&["headed.c"], &options);
            let image = Image::parse(&built[0].image).unwrap();
            let kind = |symbol| {
                let import = image.imports().find(|import| import.symbol == symbol).unwrap();
                (import.kind(), import.flags.contains(ImportFlags::WEAK))
            };
            assert_eq!(kind("level"), (ImportKind::Variable, false));
            assert_eq!(kind("label"), (ImportKind::Variable, true));
            assert_eq!(kind("of_the_target"), (ImportKind::Function, false));
            assert_eq!(kind("bare"), (ImportKind::Unknown, false));
            assert_eq!(
                image.entries().next().unwrap().flags,
                EntryFlags::SHARED.union(EntryFlags::IDEMPOTENT),
                "what `main` returns counts, too"
            );
        }
        // In C++ the same declarations have C's linkage. The front end alone: `build` takes no C++.
        let cpp = std::process::Command::new(&compiler)
            .args([
                "-x",
                "c++",
                "-std=c++11",
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                "-pedantic",
                "-Werror",
            ])
            .arg("-I")
            .arg(files.path("target/include"))
            .arg(files.path("headed.c"))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&cpp.stderr);
        // Debian's `gcc` by itself has no front end for C++.
        let absent = stderr.contains("cannot execute") && stderr.contains("cc1plus");
        assert!(cpp.status.success() || absent, "{compiler}: {stderr}");
    }
    // A header of the user with the same name wins.
    fs::create_dir(files.path("own")).unwrap();
    fs::write(files.path("own/ifunc.h"), "#error \"mine\"\n").unwrap();
    let options = COptions {
        cflags: vec![format!("-I{}", files.path("own").display())],
        ..files.options()
    };
    let refusal = build_c(&[files.path("headed.c")], &options, &mut Quiet).unwrap_err();
    assert!(refusal.to_string().contains("mine"), "{refusal}");
}

#[test]
fn the_header_describes_the_context_of_the_abi() {
    use ifunc_abi::context::{Context, Level, MAIN_BAD_ANSWER, MAIN_BAD_PAYLOAD, MAIN_OK};
    use std::mem::{align_of, offset_of, size_of};

    let mut text = WITH_HEADER.to_owned();
    let mut says = |what: String| text.push_str(&format!("_Static_assert({what}, \"{what}\");\n"));
    says(format!(
        "sizeof(struct ifunc_context) == {} && __alignof__(struct ifunc_context) == {}",
        size_of::<Context>(),
        align_of::<Context>()
    ));
    macro_rules! fields {
        ($($field:ident: $size:expr),*) => {
            $(says(format!(
                "offsetof(struct ifunc_context, {0}) == {1} && sizeof(((struct ifunc_context *)0)->{0}) == {2}",
                stringify!($field), offset_of!(Context, $field), $size
            ));)*
            // Every field of the struct: one more does not compile here.
            let _ = |context: Context| { let Context { $($field: _),* } = context; };
        };
    }
    fields!(version: 4, size: 4, sender: 8, answer: 8, answer_capacity: 8, answer_len: 8, log: 8, host: 8);
    for (name, value) in [
        ("IFUNC_OK", MAIN_OK),
        ("IFUNC_BAD_PAYLOAD", MAIN_BAD_PAYLOAD),
        ("IFUNC_BAD_ANSWER", MAIN_BAD_ANSWER),
        ("IFUNC_LOG_ERROR", Level::Error as u32),
        ("IFUNC_LOG_WARN", Level::Warn as u32),
        ("IFUNC_LOG_INFO", Level::Info as u32),
        ("IFUNC_LOG_DEBUG", Level::Debug as u32),
        ("IFUNC_LOG_TRACE", Level::Trace as u32),
    ] {
        says(format!("{name} == {value}"));
    }
    let files = Files::new(&[("headed.c", &text)]);
    files.build(&["headed.c"]);
}

#[test]
fn what_does_not_look_as_declared_does_not_compile() {
    let refused = |from: &str, to: &str, reasons: &[&str]| {
        assert!(WITH_HEADER.contains(from), "{from}");
        let files = Files::new(&[("headed.c", &WITH_HEADER.replace(from, to))]);
        for compiler in compilers() {
            let options = COptions {
                compiler: Some(compiler),
                ..files.options()
            };
            let refusal = build_c(&[files.path("headed.c")], &options, &mut Quiet)
                .unwrap_err()
                .to_string();
            assert!(reasons.iter().any(|reason| refusal.contains(reason)), "{refusal}");
        }
    };
    for (from, to, function) in [
        (
            "void *target_args, struct",
            "int target_args, struct",
            "headed_main",
        ),
        ("IFUNC_MAIN_WITH", "IFUNC_MAIN(headed); //", "headed_main"),
        (
            "IFUNC_PAYLOAD_BOUND",
            "IFUNC_PAYLOAD_MAX_SIZE",
            "headed_payload_init",
        ),
        (
            "size_t *payload_size)",
            "size_t payload_size[], int)",
            "headed_payload_init",
        ),
    ] {
        // gcc's quotes are not clang's.
        let quoted = ["‘’", "''"].map(|quotes| {
            let (open, close) = quotes.split_at(quotes.len() / 2);
            format!("conflicting types for {open}{function}{close}")
        });
        refused(from, to, &[&quoted[0], &quoted[1]]);
    }
    refused(
        "IFUNC_ASSERT_PROTOTYPE(of_the_target, uint64_t, uint64_t)",
        "IFUNC_ASSERT_PROTOTYPE(of_the_target, uint64_t, int)",
        &["`of_the_target` is not `uint64_t of_the_target(int)`"],
    );
    refused(
        "IFUNC_ASSERT_LAYOUT(uint64_t, 8, 8)",
        "IFUNC_ASSERT_LAYOUT(uint64_t, 8, 4)",
        &["`uint64_t` does not have 8 bytes, aligned to 4"],
    );
}

//! `cargo xtask fuzz --seeds`: writes the first inputs of each target, of what the project itself sends and reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ifunc_abi::batch::RunHead;
use ifunc_abi::frame::{CompanionHead, Header, InstallHead, Kind, Limits};
use ifunc_abi::hello::{Exchange, Hello, Opening, Roles, TransportTag};
use ifunc_abi::image::{ARCH_X86_64, EntryPart, ImageFlags, ImageParts, ImportFlags, ImportPart, Relocation};
use ifunc_abi::stats::{IfuncStats, PageHead, SourceStats, Stats};
use ifunc_abi::status::{FaultDetail, PanicDetail, Status};
use ifunc_abi::travel::{LostNode, ReplyHead, ScopeReport, TravelHead, WindowHead};
use ifunc_link::{Imports, Input, Linker, Request, Role};
use ifunc_rt::keys::SecretKey;
use zerocopy::IntoBytes as _;

/// Writes the inputs of a target.
fn write(target: &str, inputs: impl IntoIterator<Item = Vec<u8>>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&folder).expect("a folder");
    for (number, input) in inputs.into_iter().enumerate() {
        fs::write(folder.join(format!("seed-{number:02}")), input).expect("a file");
    }
}

fn cat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn main() {
    handshakes();
    frames();
    travel();
    stats();
    let (objects, images) = images();
    write("link", objects);
    write("image", images.clone());
    write("install", images.clone());
    write(
        "relocate",
        images
            .iter()
            .map(|image| cat(&[image, &(1_u64 << 40).to_le_bytes()])),
    );
    dropin(&images[0]);
    texts();
    calls();
    codecs();
    connections();
}

/// Packed messages of UCX's transport: a name, and entries of which some have a token, credits and a word 1 of their own.
fn packed() -> [Vec<u8>; 2] {
    const WORD_1: u64 = 1 << 29;
    const TOKEN: u64 = 1 << 30;
    const CREDITS: u64 = 1 << 31;
    let words = |words: &[u64]| {
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let name = words(&[7 << 32 | 9]);
    [
        cat(&[&name, &words(&[1 | 3 << 16 | 1 << 32]), b"one"]),
        cat(&[
            &name,
            &words(&[1 | 3 << 16 | 1 << 32 | TOKEN, 5]),
            b"one\0\0\0\0\0",
            &words(&[2 | 1 << 32 | 3 << 48 | CREDITS, 1 << 32 | 4]),
            &words(&[3 | 8 << 16 | WORD_1, 1 << 50 | 1]),
            b"12345678",
        ]),
    ]
}

fn handshakes() {
    let hello = Hello {
        arch: ARCH_X86_64,
        roles: Roles::SERVES.with(Roles::INVOKES),
        cpu_features: 7,
        node: Some(3),
        epoch: 1 << 60,
        limits: Limits {
            max_payload: 1 << 20,
            max_image: 1 << 20,
            max_answer: 1 << 16,
        },
    };
    let rings: [u32; 4] = [1024, 1 << 20, 1024, 1 << 20];
    let rings = rings.map(u32::to_le_bytes).concat();
    let tags = [
        TransportTag::SHM,
        TransportTag::UCX,
        TransportTag::UCX_PUT,
        TransportTag::TLS,
    ];
    let mut messages = Vec::new();
    for (first, tag) in (0_u8..).zip(tags) {
        let encoded = hello.encode(tag);
        let name = (7_u64 << 32).to_le_bytes();
        let offer = cat(&[
            &(1_u64 << 30).to_le_bytes(),
            &9_u32.to_le_bytes(),
            &20_u32.to_le_bytes(),
            &[5; 20],
        ]);
        let bodies = [
            encoded.to_vec(),
            cat(&[&encoded, &[1, 0, 0, 0]]),
            cat(&[&encoded, &[1, 0, 0, 0], &rings, &[7, 0, 0, 0]]),
            cat(&[&encoded, &name, &rings]),
            cat(&[&encoded, &name, &rings, &offer]),
            cat(&[Opening::refusal(tag, true).as_bytes(), b"it is full"]),
        ];
        messages.extend(bodies.iter().map(|body| cat(&[&[first], body])));
    }
    for (first, tag) in [(1, TransportTag::UCX), (2, TransportTag::UCX_PUT)] {
        let exchanges = [
            Exchange::Worker {
                nonce: 1 << 100,
                address: &[7; 60],
            },
            Exchange::Refused(b"not you"),
            Exchange::Busy(b"not now"),
        ];
        for exchange in exchanges {
            let mut message = vec![first];
            exchange.encode(tag, &mut message);
            messages.push(message);
        }
        let (encoded, name, nonce) = (
            hello.encode(tag),
            7_u64.to_le_bytes(),
            (1_u128 << 100).to_le_bytes(),
        );
        messages.push(cat(&[&[first], &encoded, &name, &nonce]));
    }
    messages.extend(packed().map(|message| cat(&[&[1], &message])));
    write("hello", messages);
    let encoded = hello.encode(TransportTag::TLS);
    let welcome = cat(&[&encoded, &rings]);
    let greeting =
        |message: &[u8], piece: u8| cat(&[&[1, piece], &(message.len() as u16).to_le_bytes(), message]);
    let steps =
        b"\x00\x3a\x42\x92\x04\x05\x06\xff\x0f\x06\x02\x0a\x12\x1a\x04\x04\x05\x05\x06\x7f\x13\x00\x01"
            .to_vec();
    write(
        "tls",
        [
            greeting(&encoded, 255),
            greeting(&welcome, 7),
            greeting(&welcome, 1),
            steps,
        ],
    );
}

fn frames() {
    let word = |header: Header| header.words().map(u64::to_le_bytes).concat();
    let head = InstallHead::signed([7; 32], 2);
    let frames = [
        cat(&[&[8, 0, 0, 0, 1, 0, 0, 0], &word(Header::new(Kind::Exec, 7, 9))]),
        cat(&[
            &[8, 0, 0, 0, 1, 0, 0, 0],
            &word(Header::new(Kind::Install, 1, 2)),
            head.as_bytes(),
            &[3; 96],
            b"image",
        ]),
        cat(&[
            &[8, 0, 0, 0, 1, 0, 0, 0],
            &word(Header::new(Kind::Install, 1, 2)),
            InstallHead::unsigned([7; 32], 2).with_companions(2).as_bytes(),
            CompanionHead::new([8; 32], 4, true).as_bytes(),
            &[3; 96],
            b"code",
            CompanionHead::new([9; 32], 0, false).as_bytes(),
            b"image",
        ]),
        cat(&[
            &[0; 8],
            &word(Header::new(Kind::Completion, Status::Executed.code(), 2)),
            InstallHead::unsigned([1; 32], 1).as_bytes(),
        ]),
    ];
    write("frame", frames);
    let mut body = Vec::new();
    for (token, len, stride, count) in [(1, 8, 8, 3), (0, 5, 8, 2), (9, 0, 0, 100), (u64::MAX, 3, 3, 1)] {
        let head = RunHead::new(4, token, len, stride, count);
        body.extend_from_slice(head.as_bytes());
        body.resize(body.len() + head.run_len().expect("a run") - RunHead::SIZE, 5);
    }
    write("batch", [body.clone(), body[..56].to_vec()]);
}

fn travel() {
    let mut report = ScopeReport {
        executed: 5,
        ..ScopeReport::default()
    };
    report.fail(3, Status::from_code(0x201).unwrap_or(Status::Executed), b"why");
    report.lose(9);
    let mut encoded = Vec::new();
    report.encode_to(&mut encoded, usize::MAX);
    let panic = PanicDetail {
        line: 7,
        column: 3,
        file: "src/lib.rs",
        message: "ouch",
        calls: &[1, 0, 0, 0, 2, 0, 0, 0],
    };
    let fault = FaultDetail {
        is_placed: true,
        calls: &[1, 0, 0, 0],
        text: "SIGSEGV",
    };
    let reply = ReplyHead {
        slot: 1.into(),
        node: 2.into(),
        index: 3.into(),
        is_last: 1.into(),
    };
    let window = WindowHead {
        slot: 1.into(),
        count: 2.into(),
        waiter: 3.into(),
    };
    let inputs = [
        cat(&[&[0], TravelHead::of_source(4).as_bytes(), b"payload"]),
        cat(&[&[1], reply.as_bytes(), b"answer"]),
        cat(&[&[2], window.as_bytes()]),
        cat(&[&[3], [LostNode::new(1, 2), LostNode::new(3, 4)].as_bytes()]),
        cat(&[&[4], &encoded]),
        cat(&[&[5], &panic.encode()]),
        cat(&[&[5], &fault.encode()]),
        vec![6, 1, 1, 0, 0],
    ];
    write("travel", inputs);
}

fn stats() {
    let mut stats = Stats {
        runtime: "0.1.0".into(),
        address: "shm:counter".into(),
        pid: 77,
        ..Stats::default()
    };
    stats.sources.push(SourceStats::default());
    let mut ifunc = IfuncStats {
        name: "add".into(),
        ..IfuncStats::default()
    };
    ifunc.counts.times.record(900);
    ifunc.counts.times.record(1 << 40);
    stats.ifuncs.push(ifunc);
    let encoded = stats.encode().expect("memory");
    let head = PageHead {
        version: 2.into(),
        reserved: 0.into(),
        total: (encoded.len() as u32).into(),
        offset: 0.into(),
        cached_for_us: 5.into(),
        snapshot: 1.into(),
    };
    let empty = Stats::default().encode().expect("memory");
    write(
        "stats",
        [
            cat(&[&[0], &encoded]),
            cat(&[&[0], &empty]),
            cat(&[&[1], head.as_bytes(), &encoded]),
        ],
    );
}

/// C sources of the linker's tests: what becomes an image, and what is refused.
const SOURCES: [&str; 8] = [
    "arith",
    "calls",
    "data_imports",
    "globals",
    "jump_table",
    "strings",
    "weak",
    "comdat",
];

/// Objects, and the images that the linker makes of them, beside one with everything in it.
fn images() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ifunc-link/tests/link");
    let scratch = std::env::temp_dir().join(format!("ifunc-fuzz-seeds-{}", std::process::id()));
    fs::create_dir_all(&scratch).expect("a folder");
    let (mut objects, mut images) = (Vec::new(), Vec::new());
    for name in SOURCES {
        for (level, flags) in [("-Os", &["-g0"][..]), ("-O1", &["-g1", "-fno-plt"])] {
            let object: PathBuf = scratch.join(format!("{name}{level}.o"));
            let mut cc = Command::new("cc");
            cc.current_dir(&folder).args([
                "-c",
                "-fPIC",
                "-ffunction-sections",
                "-fdata-sections",
                "-fno-asynchronous-unwind-tables",
                "-w",
                "-U_FORTIFY_SOURCE",
                level,
            ]);
            cc.args(flags).arg("-o").arg(&object).arg(format!("{name}.c"));
            if !cc.status().expect("a C compiler").success() {
                continue;
            }
            let data = fs::read(&object).expect("an object");
            let inputs = [Input {
                name: "seed.o",
                data: &data,
                role: Role::User,
            }];
            let linked = Linker::open(&inputs).map(|linker| linker.link(&Request::new(name, Imports::Any)));
            if let Ok(Ok(image)) = linked {
                images.push(image);
            }
            objects.push(data);
        }
    }
    let _ = fs::remove_dir_all(&scratch);
    images.push(whole());
    (objects, images)
}

/// An image with everything that one may have.
fn whole() -> Vec<u8> {
    let import = |symbol: &str, flags| ImportPart {
        symbol: symbol.into(),
        flags,
        fingerprint: 0,
    };
    let second = EntryPart {
        main: 8,
        batch: Some(16),
        payload_align_log2: 3,
        ..EntryPart::new("second")
    };
    let parts = ImageParts {
        arch: ARCH_X86_64,
        flags: ImageFlags::NONE,
        entries: vec![EntryPart::new("first"), second],
        slot: Some(24),
        rx_align_log2: 4,
        rx: vec![0xc3; 64],
        rw_at: 4096,
        rw: vec![1; 40],
        rw_mem: 100,
        imports: vec![
            import("__ifunc_panic", ImportFlags::NONE),
            import("strlen", ImportFlags::WEAK),
        ],
        relocations: vec![
            Relocation::Relative {
                offset: 4096,
                addend: 8,
            },
            Relocation::Import {
                offset: 4112,
                import: 1,
                addend: -8,
            },
        ],
        needed: vec!["libm.so.6".into()],
        ..ImageParts::default()
    };
    parts.encode().expect("an image")
}

fn dropin(image: &[u8]) {
    let frame = ucp_ifunc::fuzzing::encode(b"the payload", image, 0).expect("a frame");
    let short = ucp_ifunc::fuzzing::encode(b"", b"x", 3).expect("a frame");
    let made = cat(&[&[1, 0, 0, 5], b"payload and code"]);
    let changed = cat(&[&[3, 90, 1, 5], b"payload and code"]);
    write(
        "dropin",
        [cat(&[&[0], &frame]), cat(&[&[2], &short, &short]), made, changed],
    );
}

fn texts() {
    let public = SecretKey::from_seed([1; 32], "").public();
    let signature = SecretKey::from_seed([1; 32], "").sign(&[7; 32]);
    let policy = format!(
        "revoked = [\"{public}\"]\n[connect]\nusers = [1001]\naddresses = [\"10.1.0.0/16\"]\n[[connect.key]]\nname = \"ada\"\n\
         public = \"{public}\"\n[quotas]\nimage-bytes = 1\ncode-bytes = 2\nimages = 3\npayload-bytes = 4\nanswer-bytes = 5\n\
         in-flight = 6\ninstalls-per-second = 7\n[faults]\nlevel = \"contained\"\nmax-run-time = \"20ms\"\nstack-bytes = 1_048_576\n\
         [[key]]\nname = \"builds\"\npublic = \"{public}\"\nimports = [\"kv_get\", \"log_*\"]\npure = false\n\
         quotas = {{ images = 8 }}\n[unsigned.same-user]\nimports = [\"log_*\"]\n[unsigned.every-peer]\npure = true\n"
    );
    let few = "[connect]\nany-user = true\n[faults]\nlevel = \"panics\"\nmax-run-time = \"2s\"\n";
    let texts = [
        &policy,
        few,
        "10.1.0.0/16",
        "fd00::/8",
        "192.168.1.7",
        &public.to_string(),
        &signature.to_string(),
    ];
    write("policy", texts.iter().map(|text| text.as_bytes().to_vec()));
    let addresses = [
        "shm:counter",
        "loopback:a-b_c.d",
        "tls://host.example:4711",
        "ucx://[::1]:4711",
        "ucx-put://127.0.0.1:0",
        "ucx-worker:",
        "ucx-worker:01001b000101010101010101",
    ];
    write("address", addresses.iter().map(|text| text.as_bytes().to_vec()));
}

fn calls() {
    let inputs: [(&str, &[u8]); 12] = [
        ("raw bytes", b"{\"hex\":\"00ff\"}"),
        ("raw str", b"\"text\""),
        ("u64", b"\x07\0\0\0\0\0\0\0"),
        ("[struct P{0:a:u8,2:b:u16}[4,2]]", b"[{\"a\":1,\"b\":2}]"),
        ("(Option<char>,enum E:i16{A=-1}[2,2])", b"[null,\"A\"]"),
        ("parts(u8,str,[f64])", b"[1,\"a\",[0.5]]"),
        (
            "postcard struct Query{limit:u8,parts:[struct Part{name:str,ids:{str:[u16]}}]}",
            b"{\"limit\":1,\"parts\":[]}",
        ),
        (
            "postcard enum Kind{None,Named(str),Full{id:u64,note:Option<str>}}",
            b"\x01\x02ab",
        ),
        ("postcard SocketAddr", b"\"127.0.0.1:80\""),
        ("postcard {u16:f32}", b"\x01\x05\0\0\x80\x3f"),
        ("postcard (i128,bytes,Option<bool>)", b"\x01\x02ab\x01\x01"),
        ("Vec<u64>", b"[1,2,3]"),
    ];
    write(
        "call",
        inputs
            .iter()
            .map(|(text, bytes)| cat(&[text.as_bytes(), &[0], bytes])),
    );
}

fn codecs() {
    let point = [&[0; 24][..], &[1, 2, 3, 200], &[0; 12]].concat();
    let record = b"\x01a\x05\x07\x08\x09\x01\0\0\0\0\0\0\xf0\x3f\x01z\x01\x01k\x01\x04\x02\0\x01\x01b\0\x05";
    let row = {
        let lens = [3_u64, 2].map(u64::to_le_bytes).concat();
        cat(&[&lens, &[7], b"abc", &[0; 80]])
    };
    let mut inputs: Vec<Vec<u8>> = (0..16_u8).map(|first| cat(&[&[first], &[1; 16]])).collect();
    inputs.extend([0, 4, 5, 14].map(|first| cat(&[&[first], &point])));
    inputs.extend([7, 12].map(|first| cat(&[&[first], &record[..]])));
    inputs.push(cat(&[&[6], &row]));
    inputs.push(cat(&[
        &[3],
        &2_u64.to_le_bytes(),
        &[1, 0, 2, 0, 1],
        &1.5_f32.to_le_bytes(),
    ]));
    inputs.push(cat(&[&[8], b"\x03\x01\x02ab\x02\x04\x06"]));
    inputs.push(cat(&[&[10], b"\x02ab\x03xyz\x01\x07"]));
    write("codec", inputs);
}

/// Steps of a connection: installs and invokes, serves, travels, loses its link. See `src/connection`.
fn connections() {
    let both = b"\0\x06a\x01\0\x05image\x01\0\0\x09\x0e\x05\x10\0\x10\x08\x09\0\x01\0\x01\x09\x04abcd\0\x09\x13\0\x0d\x08\x09";
    let batch = b"\0\x06a\x02\0\x03abc\x01\0\0\x09\x07\x02\0\x08\x09\0\x04\x01\0\x10\0\0\x02\x07\0\0\x09\x09\x0d\x10\x09";
    let group = b"\x18\x06a\x02\0\x03abc\x01\0\0\x09\x08\x01\x02\x05\x07\x04xsyz\0\x03\0\x09\x09\x16\x20\x09\x17\0\x09";
    let calls = b"\x04\x0e\x07\x0e\x09\x10\0\x10\x20\x10\x01\x55\x30\x12\0\x0d\x08\x13\0\x13\x01\x00\x10\0\0\x01\x02ok\0\x13\0\x17\0";
    let fragments = b"\0\x06a\x01\0\x05image\x01\0\0\x09\x00\x04\0\0\xc8\x10aaaa\0\x00\x04\0\0\xc8\x10bbbb\0\x00\x01\x02\0\x01\x10cc\0\x09";
    write(
        "connection",
        [&both[..], batch, group, calls, fragments].map(<[u8]>::to_vec),
    );
}

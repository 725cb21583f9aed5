//! Each capability, by ifuncs in the daemon's process and in processes of their own.

use ifuncd_interfaces::NodeError;
use ifuncd_tests_ifuncs::{
    d_all, d_count, d_delete, d_get, d_list, d_log, d_put, d_random, d_read, d_region, d_scan, d_sum, d_time,
    d_write,
};

use super::running::{Daemon, OWN, handle};

/// The number by which the ifuncs of the tests tell an error.
pub(crate) fn error(error: NodeError) -> i64 {
    -i64::from(error as i32)
}

fn each_level(test: impl Fn(&Daemon)) {
    for level in ["contained", "process"] {
        eprintln!("level {level}");
        test(&Daemon::start(level, OWN));
    }
}

#[test]
fn the_store_keeps_values() {
    each_level(|daemon| {
        let source = daemon.connect();
        let put = handle::<d_put>(&source, "d_put");
        let get = handle::<d_get>(&source, "d_get");
        let put = |key: &[u8], value: &[u8]| put.call(&(key, value)).unwrap().wait().unwrap();
        let get = |key: &[u8]| get.call(key).unwrap().wait().unwrap();
        assert_eq!(put(b"a/1", &[1, 2, 3]), 0);
        assert_eq!(put(b"a/2", &[9; 300]), 0);
        assert_eq!(put(b"b", b""), 0);
        assert_eq!(get(b"a/1"), (3, 6));
        // What has no room is left out, and the length is that of the value.
        assert_eq!(get(b"a/2"), (300, 9 * 256));
        assert_eq!((get(b"b"), get(b"c")), ((0, 0), (error(NodeError::NotFound), 0)));
        assert_eq!(put(b"", b"x"), error(NodeError::Name));
        assert_eq!(put(&[0; 1025], b"x"), error(NodeError::Name));
        let scan = handle::<d_scan>(&source, "d_scan");
        let scan = |prefix: &[u8], most: u64| scan.call(&(prefix, most)).unwrap().wait().unwrap();
        let stored = 3 + 3 + 3 + 300 + 1;
        assert_eq!(scan(b"a/", 10), (2, 303, stored));
        assert_eq!(scan(b"a/", 1), (1, 3, stored));
        assert_eq!(scan(b"", 10), (3, 303, stored));
        let delete = handle::<d_delete>(&source, "d_delete");
        let delete = |key: &[u8]| delete.call(key).unwrap().wait().unwrap();
        assert_eq!((delete(b"a/2"), delete(b"a/2")), (0, error(NodeError::NotFound)));
        assert_eq!(scan(b"", 10), (2, 3, 3 + 3 + 1));
    });
}

#[test]
fn files_are_those_below_the_folder() {
    each_level(|daemon| {
        let data = daemon.path("data");
        let long: Vec<u8> = (0..600_000_u32).map(|n| n as u8).collect();
        std::fs::write(data.join("long"), &long).unwrap();
        std::fs::create_dir(data.join("folder")).unwrap();
        std::fs::write(data.join("folder/short"), [5, 6]).unwrap();
        std::os::unix::fs::symlink("/etc", data.join("out")).unwrap();
        std::os::unix::fs::symlink("folder", data.join("in")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            data.join("pipe"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let source = daemon.connect();
        let read = handle::<d_read>(&source, "d_read");
        let read = |path: &str, offset: u64| read.call(&(path, offset)).unwrap().wait().unwrap();
        let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        assert_eq!(read("long", 0), (600_000, 64, sum(&long[..64]), sum(&long)));
        assert_eq!(
            read("long", 599_990),
            (600_000, 10, sum(&long[599_990..]), sum(&long[599_990..]))
        );
        assert_eq!(read("long", u64::MAX).1, error(NodeError::Name));
        assert_eq!(read("folder/short", 0), (2, 2, 11, 11));
        assert_eq!(read("in/short", 1), (2, 1, 6, 6));
        for (path, why) in [
            ("none", NodeError::NotFound),
            ("folder", NodeError::NotFound),
            ("pipe", NodeError::NotFound),
            ("", NodeError::NotFound),
            ("../ifuncd.toml", NodeError::Name),
            ("/etc/passwd", NodeError::Name),
            ("out/passwd", NodeError::Name),
            ("folder/../../ifuncd.toml", NodeError::Name),
            ("a\0b", NodeError::Name),
        ] {
            assert_eq!(read(path, 0), (error(why), error(why), 0, 0), "{path:?}");
        }
        let list = handle::<d_list>(&source, "d_list");
        let list = |path: &str| list.call(path).unwrap().wait().unwrap();
        assert_eq!(list(""), "folder/,long,");
        assert_eq!(list("folder"), "short,");
        assert!(list("..").contains("leaves the folder") && list("long").contains("no such file"));
        let write = handle::<d_write>(&source, "d_write");
        let write = |path: &str, bytes: &[u8]| write.call(&(path, bytes)).unwrap().wait().unwrap();
        assert_eq!(write("folder/new", b"new"), 0);
        assert_eq!(std::fs::read(data.join("folder/new")).unwrap(), b"new");
        assert_eq!(write("out/new", b"new"), error(NodeError::Name));
        assert_eq!(write("nowhere/new", b"new"), error(NodeError::NotFound));
        assert_eq!(write("big", &[0; 2000]), error(NodeError::Quota));
    });
}

#[test]
fn regions_outlive_connections() {
    each_level(|daemon| {
        for round in 0..3 {
            let source = daemon.connect();
            let count = handle::<d_count>(&source, "d_count");
            let count = |name: &str, len: u64| count.call(&(name, len, 5)).unwrap().wait().unwrap();
            assert_eq!(count("kept", 16), (0, 10 * round));
            // It adds all the same.
            assert_eq!(count("kept", 17), (error(NodeError::Conflict), 10 * round + 5));
            assert_eq!(count("short", 7), (0, error(NodeError::Range)));
        }
        let source = daemon.connect();
        let region = handle::<d_region>(&source, "d_region");
        let seen = region.call("kept").unwrap().wait().unwrap();
        // Nothing was swapped: it was not 0. Three bytes were stored, and loaded after the last byte of the number.
        let loaded = i64::from(u32::from_le_bytes([0, 1, 2, 3]));
        assert_eq!(
            seen,
            [
                16,
                30,
                error(NodeError::Range),
                loaded,
                2,
                error(NodeError::NotFound)
            ]
        );
        let count = handle::<d_count>(&source, "d_count");
        let huge = count.call(&("huge", 2 << 20, 1)).unwrap().wait().unwrap();
        assert_eq!(huge, (error(NodeError::Quota), error(NodeError::NotFound)));
    });
}

#[test]
fn an_ifunc_uses_several_interfaces() {
    each_level(|daemon| {
        std::fs::write(daemon.path("data/file"), b"0123456789").unwrap();
        let source = daemon.connect();
        let all = handle::<d_all>(&source, "d_all")
            .call("file")
            .unwrap()
            .wait()
            .unwrap();
        let [read, put, region, time, random, log] = all;
        assert_eq!((read, put, region, random, log), (10, 0, 0, 1, 0));
        assert!(time > 1_700_000_000_000_000_000, "{time}");
        assert_eq!(
            handle::<d_get>(&source, "d_get")
                .call(b"all")
                .unwrap()
                .wait()
                .unwrap()
                .0,
            10
        );
        let (first, second) = handle::<d_time>(&source, "d_time")
            .call(&0)
            .unwrap()
            .wait()
            .unwrap();
        assert!(0 < first && first <= second);
        let random = handle::<d_random>(&source, "d_random");
        let random = |len: u64| random.call(&len).unwrap().wait().unwrap();
        assert_eq!(
            (random(64 << 10), random((64 << 10) + 1)),
            (0, error(NodeError::Range))
        );
        assert_eq!(
            handle::<d_log>(&source, "d_log")
                .call("a line\nof two")
                .unwrap()
                .wait()
                .unwrap(),
            0
        );
        daemon.wait_for_log("a line of two");
        assert_eq!(
            handle::<d_sum>(&source, "d_sum")
                .call(&[1, 2, 3])
                .unwrap()
                .wait()
                .unwrap(),
            6
        );
    });
}

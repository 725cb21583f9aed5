//! Meeting, and what lies there from before.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::entry::{Entry, Publisher};
use super::*;

/// A folder that is gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ifunc-rendezvous-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(30);

#[test]
fn all_find_all_and_leave_nothing() {
    let scratch = Scratch::new("all");
    // A name that is no file name.
    let meeting = Rendezvous::in_directory(&scratch.0, "cluster/7 step:3").unwrap();
    let address = |rank: u32| format!("ucx://10.0.0.{rank}:{}", 4000 + rank);
    for round in 0..20 {
        let all_have_found = std::sync::Barrier::new(6);
        thread::scope(|scope| {
            for rank in 0..6 {
                let (meeting, all_have_found) = (&meeting, &all_have_found);
                scope.spawn(move || {
                    let published = meeting.publish(rank, &address(rank)).unwrap();
                    for other in 0..6 {
                        assert_eq!(
                            meeting.find(other, LONG).unwrap(),
                            address(other),
                            "round {round}"
                        );
                    }
                    all_have_found.wait();
                    drop(published);
                });
            }
        });
    }
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn who_is_late_is_waited_for_and_who_is_missing_is_named() {
    let scratch = Scratch::new("late");
    let meeting = Rendezvous::in_directory(&scratch.0, "late").unwrap();
    thread::scope(|scope| {
        let found = scope.spawn(|| meeting.find(3, LONG));
        thread::sleep(SHORT);
        let _published = meeting.publish(3, "shm:three").unwrap();
        assert_eq!(found.join().unwrap().unwrap(), "shm:three");
    });
    let said = meeting.find(4, SHORT).unwrap_err();
    assert!(matches!(said, RendezvousError::Missing { rank: 4, .. }), "{said}");
    let said = said.to_string();
    assert!(said.contains("rank 4") && said.contains("ifunc-late"), "{said}");
    let said = Rendezvous::in_directory(scratch.0.join("nowhere"), "late").unwrap();
    let said = said.publish(0, "shm:zero").unwrap_err().to_string();
    assert!(said.contains("cannot find the directory"), "{said}");
}

#[test]
fn what_lies_there_from_before_is_not_taken() {
    let scratch = Scratch::new("before");
    let meeting = Rendezvous::in_directory(&scratch.0, "again").unwrap();
    let earlier = meeting.publish(0, "shm:earlier").unwrap();
    let file = scratch.0.join("ifunc-again/0");
    let text = fs::read_to_string(&file).unwrap();
    let there = |text: &str| {
        fs::write(&file, text).unwrap();
        meeting.find(0, SHORT)
    };
    assert_eq!(there(&text).unwrap(), "shm:earlier");
    // A process that has ended, and one that has another's number.
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let this = format!("process {} ", std::process::id());
    for by in [format!("process {pid} "), format!("{this}9")] {
        let said = there(&text.replace(&this, &by)).unwrap_err().to_string();
        assert!(said.contains("of a process that has ended"), "{said}");
    }
    let said = there(&text.replace("job again", "job before"))
        .unwrap_err()
        .to_string();
    assert!(said.contains("of another job"), "{said}");
    // Cut off anywhere, it is no address.
    for len in 0..text.len() - 1 {
        assert!(Entry::decode(&text[..len]).is_none(), "{len}");
    }
    let said = there(&text[..text.len() / 2]).unwrap_err().to_string();
    assert!(said.contains("no address"), "{said}");
    // A later process replaces it, and an earlier one does not remove it.
    let _later = meeting.publish(0, "shm:later").unwrap();
    drop(earlier);
    assert_eq!(meeting.find(0, SHORT).unwrap(), "shm:later");
}

#[test]
fn an_address_of_another_host_is_one_of_a_network() {
    let scratch = Scratch::new("hosts");
    let meeting = Rendezvous::in_directory(&scratch.0, "hosts").unwrap();
    let boot = Publisher::this().boot;
    for (address, reached) in [
        ("shm:x", false),
        ("ucx://127.0.0.1:1", false),
        ("ucx://localhost:1", false),
        ("ucx://10.0.0.1:1", true),
    ] {
        let _published = meeting.publish(1, address).unwrap();
        assert_eq!(meeting.find(1, SHORT).unwrap(), address);
        let file = scratch.0.join("ifunc-hosts/1");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace(&boot, "another")).unwrap();
        match meeting.find(1, SHORT) {
            Ok(found) => assert!(reached && found == address, "{found}"),
            Err(RendezvousError::Unreachable { rank: 1, .. }) => assert!(!reached, "{address}"),
            Err(error) => panic!("{error}"),
        }
    }
    for address in ["ucx://0.0.0.0:1", "ucx://10.0.0.1:0"] {
        assert!(
            matches!(
                meeting.publish(1, address),
                Err(RendezvousError::Unreachable { .. })
            ),
            "{address}"
        );
    }
}

#[test]
fn a_folder_that_others_write_to_is_refused() {
    let scratch = Scratch::new("open");
    let meeting = Rendezvous::in_directory(&scratch.0, "open").unwrap();
    let published = meeting.publish(0, "shm:x").unwrap();
    let folder = scratch.0.join("ifunc-open");
    let mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    for said in [
        meeting.find(0, SHORT).unwrap_err(),
        meeting.publish(1, "shm:y").unwrap_err(),
    ] {
        assert!(matches!(said, RendezvousError::Directory { .. }), "{said}");
        assert!(said.to_string().contains("others may write to it"), "{said}");
    }
    mode(0o700);
    // A link is not followed, wherever it leads.
    fs::rename(folder.join("0"), folder.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", folder.join("0")).unwrap();
    assert!(matches!(meeting.find(0, SHORT), Err(RendezvousError::Io { .. })));
    drop(published);
    // Nor is one in place of the folder, which could lead elsewhere a moment later.
    std::os::unix::fs::symlink("ifunc-open", scratch.0.join("ifunc-link")).unwrap();
    let by_link = Rendezvous::in_directory(&scratch.0, "link").unwrap();
    for said in [
        by_link.find(0, SHORT).unwrap_err(),
        by_link.publish(1, "shm:y").unwrap_err(),
    ] {
        assert!(
            matches!(said, RendezvousError::Io { doing: "open", .. }),
            "{said}"
        );
    }
    Rendezvous::in_directory(Path::new("/"), "a b").unwrap();
    for job in ["", "a\nb", &"a".repeat(257)] {
        let said = Rendezvous::in_directory(Path::new("/"), job).unwrap_err();
        assert!(
            matches!(&said, RendezvousError::Job(name) if name == job),
            "{said}"
        );
        assert!(said.to_string().contains("1 to 256 bytes"), "{said}");
    }
}

#[test]
fn lists_are_read() {
    let text = "10.0.0.1:4711, ucx://10.0.0.2:1 # the second\n\n# none\nnode-3:9\tshm:here";
    let all = list::parse(text, list::scheme(None)).unwrap();
    let all: Vec<_> = all.iter().map(ToString::to_string).collect();
    assert_eq!(
        all,
        [
            "ucx://10.0.0.1:4711",
            "ucx://10.0.0.2:1",
            "ucx://node-3:9",
            "shm:here"
        ]
    );
    for text in ["10.0.0.1", "10.0.0.1:port"] {
        let said = Rendezvous::of_addresses([text]).unwrap_err();
        assert!(matches!(said, RendezvousError::Address(_)), "{said}");
        assert!(said.to_string().contains("; help: write `"), "{said}");
    }
    let meeting = Rendezvous::of_addresses(["10.0.0.1:1", "10.0.0.2:2"]).unwrap();
    let _nothing = meeting.publish(1, "ucx://10.0.0.2:2").unwrap();
    assert_eq!(meeting.find(1, SHORT).unwrap(), "ucx://10.0.0.2:2");
    assert_eq!(meeting.listed(0).as_deref(), Some("ucx://10.0.0.1:1"));
    assert!(matches!(
        meeting.find(2, SHORT),
        Err(RendezvousError::NotListed { rank: 2, listed: 2 })
    ));
}

#[test]
fn launchers_say_who_is_who() {
    let launched = |set: &[(&str, &str)]| {
        let set: Vec<(String, String)> = set.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        Launched::from(move |name| set.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()))
    };
    let slurm = [
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_RESTART_COUNT", "1"),
    ];
    let me = launched(&slurm).unwrap();
    assert_eq!((me.rank, me.size, &*me.job), (3, 8, "77 0 1"));
    let mpirun = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_MCA_orte_precondition_transports", "1e51-ff28"),
    ];
    // `mpirun` inside a job of Slurm's.
    let me = launched(&[&slurm[..], &mpirun].concat()).unwrap();
    assert_eq!((me.rank, me.size, &*me.job), (1, 4, "1e51-ff28"));
    let me = launched(&[&mpirun[..], &[("IFUNC_JOB", "mine")]].concat()).unwrap();
    assert_eq!(me.job, "mine");
    let said = launched(&[]).map(drop).unwrap_err();
    assert!(matches!(said, RendezvousError::NotLaunched { .. }), "{said}");
    assert!(
        said.to_string().contains("help: start it with `mpirun`"),
        "{said}"
    );
    let lacking = launched(&[("IFUNC_RANK", "0"), ("IFUNC_SIZE", "1")]);
    assert!(matches!(
        lacking,
        Err(RendezvousError::NotLaunched { missing: "IFUNC_JOB" })
    ));
    let wrong = [("PMI_RANK", "4"), ("PMI_SIZE", "4"), ("PMI_JOBID", "x")];
    assert!(matches!(
        launched(&wrong),
        Err(RendezvousError::Rank { rank: 4, size: 4 })
    ));
    let said = launched(&[("PMI_RANK", "one")]).map(drop).unwrap_err();
    assert!(
        matches!(said, RendezvousError::Number { name: "PMI_RANK", .. }),
        "{said}"
    );
    assert!(
        said.to_string().contains("PMI_RANK=one is not a number; help: "),
        "{said}"
    );
}

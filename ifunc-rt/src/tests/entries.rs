//! Images with several entries, from the source's handles to the target's counts.

use ifunc_abi::frame::InstallHead;
use ifunc_abi::image::{EntryPart, ImageParts};
use ifunc_abi::stats::{IfuncStats, Stats};
use ifunc_abi::travel::TravelError;

use super::running::{Running, accepting, everywhere, source, unique};
use super::{images, machine};
use crate::{ByName, Error, Failure, Handle, fingerprint};

fn number(answer: Vec<u8>) -> u64 {
    u64::from_le_bytes(answer.try_into().unwrap())
}

fn of<'s>(stats: &'s Stats, name: &str) -> &'s IfuncStats {
    let mut found = stats.ifuncs.iter().filter(|ifunc| ifunc.name == name);
    let one = found.next().expect("it was counted");
    assert!(found.next().is_none(), "{name} is counted once");
    one
}

#[test]
fn the_entries_of_an_image_travel_once_and_share_its_data() {
    everywhere(|address, builder| {
        let target = builder().listen(address).unwrap();
        let stats = target.stats_handle();
        let serving = target.spawn(0u64).unwrap();
        let source = source(address);
        let image = images::several().encode().unwrap();
        let [count, reset] = ["count", "reset"].map(|name| source.load_entry(&image, name).unwrap());
        assert_eq!((count.name(), reset.name()), ("count", "reset"));
        assert_eq!(count.id(), reset.id());
        assert_eq!(number(count.call(b"").unwrap().wait().unwrap()), 101);
        reset.send(&7u64.to_le_bytes()).unwrap();
        assert_eq!(number(count.call(b"").unwrap().wait().unwrap()), 8);
        // A third user, of an entry that none used yet.
        let panics = source.load_entry(&image, "panics").unwrap();
        match panics.call(b"").unwrap().wait() {
            Err(Error::Panic { ifunc, message, .. }) => assert_eq!((&*ifunc, &*message), ("panics", "ouch")),
            other => panic!("{other:?}"),
        }
        source.flush().unwrap();

        let now = stats.read();
        assert_eq!((now.total.installs, now.total.frames), (1, 1 + 4 + 1));
        let install = InstallHead::SIZE + image.len();
        assert_eq!(now.total.bytes_in, (install + 8) as u64);
        assert_eq!(now.code.images, 1);
        assert_eq!(now.sources[0].bound, 3);
        for (name, hits, failed) in [("count", 2, 0), ("reset", 1, 0), ("panics", 1, 1)] {
            let ifunc = of(&now, name);
            let counts = &ifunc.counts;
            assert_eq!(
                (counts.hits, counts.failed, counts.installs),
                (hits, failed, 1),
                "{name}"
            );
            assert_eq!((ifunc.id, ifunc.size), (*count.id(), image.len() as u64));
            assert_eq!(ifunc.memory, now.code.used, "shared, so it counts once");
        }

        drop((count, panics));
        source.flush().unwrap();
        reset.call(&1u64.to_le_bytes()).unwrap().wait().unwrap();
        assert_eq!(stats.read().sources[0].bound, 3, "the image is in use");
        drop(reset);
        source.flush().unwrap();
        let after = stats.read();
        assert_eq!((after.sources[0].bound, of(&after, "reset").bound), (0, 0));
        assert_eq!(after.total.installs, 1);
        serving.stop().unwrap();
    });
}

#[test]
fn an_entry_must_be_named_where_there_are_several() {
    let address = unique("loopback");
    let _target = accepting().listen(&address).unwrap();
    let source = source(&address);
    let image = images::several().encode().unwrap();
    let error = source.load_bytes(&image).unwrap_err().to_string();
    assert!(
        error.contains("several entries: `count`, `panics`, `reset`") && error.contains("Source::load_entry"),
        "{error}"
    );
    let error = source.load_entry(&image, "cou").unwrap_err().to_string();
    assert!(
        error.contains("is of `count`, `panics`, `reset`, not of `cou`"),
        "{error}"
    );
}

#[test]
fn an_image_is_accepted_if_each_entry_is() {
    let address = unique("loopback");
    let (tell, told) = std::sync::mpsc::channel();
    let builder = accepting().map_policy(|policy| {
        policy.accept_if(move |_, image| {
            tell.send(image.name.to_owned()).unwrap();
            image.name != "panics"
        })
    });
    let serving = builder.listen(&address).unwrap().spawn(0u64).unwrap();
    let source = source(&address);
    let count: Handle<ByName> = source
        .load_entry(&images::several().encode().unwrap(), "count")
        .unwrap();
    assert!(matches!(
        count.call(b"").unwrap().wait(),
        Err(Error::Rejected { .. })
    ));
    serving.stop().unwrap();
    let asked: Vec<_> = told.try_iter().collect();
    assert_eq!(asked, ["count", "panics"]);
}

#[test]
fn an_invocation_is_forwarded_to_an_entry_of_the_same_answer_alone() {
    // Returns what the target says.
    let (mut rx, slot) = machine::forwards();
    let end = rx.len() as u32;
    rx.extend(machine::set());
    let entry = |name: &str, main: u32, answer: &str| EntryPart {
        main,
        answer: fingerprint::of(answer),
        ..EntryPart::new(name)
    };
    let forwards_to = |answer: &str| ImageParts {
        entries: vec![entry("begins", 0, "u64"), entry("ends", end, answer)],
        slot: Some(slot),
        imports: vec![images::import("__ifunc_forward")],
        rx: rx.clone(),
        ..images::add()
    };
    let address = unique("loopback");
    let target = Running::start(&address, accepting());
    let source = source(&address);
    let says = |answer: &str| {
        let image = forwards_to(answer).encode().unwrap();
        let begins = source.load_entry(&image, "begins").unwrap();
        match begins.call(b"").unwrap().wait() {
            Err(Error::Failed {
                why: Failure::UnknownResult,
                detail,
                ..
            }) => detail,
            other => panic!("{other:?}"),
        }
    };
    let other = says("u32");
    assert!(
        other.starts_with(&format!("code {};", TravelError::AnswerType.code())),
        "{other}"
    );
    assert_eq!(
        TravelError::AnswerType.to_string(),
        "the entry has another type of answers"
    );
    let same = says("u64");
    assert!(
        same.starts_with(&format!("code {};", TravelError::NoGroup.code())),
        "{same}"
    );
    target.finish();
}

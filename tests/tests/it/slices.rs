//! Libraries with slices for several CPU levels: which one each target runs, and what goes on to other nodes.

use std::path::{Path, PathBuf};
use std::time::Instant;

use ifunc_build::{BuiltIfunc, COptions, Cpu, Quiet, Slice, build_c};
use ifunc_rt::group::Group;
use ifunc_rt::keys::{SecretKey, Signatures};
use ifunc_rt::{ByName, Error, Grant, Handle, Policy, Rejection, Serving, Source, Target, TargetBuilder};

use crate::common::{connect, unique_within};

/// All that this machine has.
const ALL: u64 = u64::MAX;

/// An ifunc of the fixtures, built for several levels.
struct Fat {
    ifunc: BuiltIfunc,
    _folder: tempfile::TempDir,
}

impl Fat {
    fn new(name: &str, levels: &[Cpu]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/c/{name}.c"));
        let options = COptions {
            target_dir: Some(folder.path().to_owned()),
            cpu: levels[0],
            slices: levels.iter().copied().map(Slice::of_cpu).collect(),
            ..COptions::default()
        };
        let built = build_c(&[file], &options, &mut Quiet).unwrap_or_else(|error| panic!("{error}"));
        let [ifunc] = <[BuiltIfunc; 1]>::try_from(built).unwrap();
        assert_eq!(ifunc.other_slices.len(), levels.len() - 1);
        Self {
            ifunc,
            _folder: folder,
        }
    }

    fn load(&self, source: &Source) -> Handle<ByName> {
        // SAFETY: built from the fixtures of these tests.
        unsafe { source.load_path(&self.ifunc.path) }.unwrap()
    }

    /// The file of signatures beside the library.
    fn signatures(&self) -> PathBuf {
        self.ifunc.path.with_extension("sig")
    }

    /// Signs the first `count` slices.
    fn sign(&self, key: &SecretKey, count: usize) {
        let others = self.ifunc.other_slices.iter().map(|slice| &slice.id);
        let mut signatures = Signatures::default();
        for id in std::iter::once(&self.ifunc.id).chain(others).take(count) {
            signatures.add(key.sign(id));
        }
        signatures.write(self.signatures()).unwrap();
    }
}

fn accepting() -> TargetBuilder {
    // SAFETY: the ifuncs of these tests.
    Target::builder().policy(unsafe { Policy::trust_every_peer() })
}

fn serve(builder: TargetBuilder) -> (String, Serving<u64>) {
    let target = builder.listen(&unique_within()).unwrap();
    (target.address(), target.spawn(0_u64).unwrap())
}

/// Nodes of one group whose CPUs have these features.
fn group(nodes: &[u64], builder: impl Fn() -> TargetBuilder) -> Vec<(String, Serving<u64>)> {
    let listen = |features: &u64| {
        let builder = builder().limit_cpu_features(*features);
        builder.listen(&unique_within()).unwrap()
    };
    let targets: Vec<Target> = nodes.iter().map(listen).collect();
    let addresses: Vec<String> = targets.iter().map(Target::address).collect();
    std::thread::scope(|scope| {
        let joining: Vec<_> = (0..)
            .zip(targets)
            .map(|(number, mut target)| {
                let addresses = &addresses;
                scope.spawn(move || {
                    let mut group = Group::new(number);
                    for (other, address) in (0..).zip(addresses) {
                        group = group.node(other, address).unwrap();
                    }
                    target.join(group).unwrap();
                    (target.address(), target.spawn(0_u64).unwrap())
                })
            })
            .collect();
        joining.into_iter().map(|joined| joined.join().unwrap()).collect()
    })
}

/// The payload of `levels`: it visits these nodes after the first one.
fn route(nodes: &[u32]) -> Vec<u8> {
    let mut words = [0_u32; 12];
    words[..nodes.len()].copy_from_slice(nodes);
    words[9] = nodes.len() as u32;
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn levels(levels: &Handle<ByName>, nodes: &[u32]) -> Result<u64, Error> {
    let answer = levels.call(&route(nodes))?.wait()?;
    Ok(u64::from_le_bytes(answer.try_into().unwrap()))
}

/// Whether this machine has AVX2: without it there is nothing to choose.
fn has_v3() -> bool {
    let has = std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("bmi2");
    if !has {
        println!("not tested: this CPU is below x86-64-v3");
    }
    has
}

#[test]
fn each_target_runs_the_best_slice_for_it() {
    if !has_v3() {
        return;
    }
    let fat = Fat::new("levels", &[Cpu::V1, Cpu::V3]);
    let (first, third) = (fat.ifunc.id, fat.ifunc.other_slices[0].id);
    for (features, level, id) in [(0, 1, first), (0b1, 1, first), (ALL, 3, third)] {
        let (address, serving) = serve(accepting().limit_cpu_features(features));
        let source = connect(&address);
        let handle = fat.load(&source);
        assert_eq!(*handle.id(), first, "before the first use");
        assert_eq!(levels(&handle, &[]).unwrap(), level);
        assert_eq!(*handle.id(), id);
        serving.stop().unwrap();
    }
}

/// Prints how much faster the better slice is, which depends on the machine: the answers do not.
#[test]
fn slices_compute_the_same_at_their_own_speed() {
    if !has_v3() {
        return;
    }
    let fat = Fat::new("dot", &[Cpu::V1, Cpu::V3]);
    let measured = [0, ALL].map(|features| {
        let (address, serving) = serve(accepting().limit_cpu_features(features));
        let source = connect(&address);
        let handle = fat.load(&source);
        let call = || handle.call(&200_u32.to_le_bytes()).unwrap().wait().unwrap();
        let answer = call();
        let times = (0..5).map(|_| {
            let begun = Instant::now();
            assert_eq!(call(), answer);
            begun.elapsed()
        });
        let fastest = times.min().unwrap();
        serving.stop().unwrap();
        (answer, fastest)
    });
    let [(first, slow), (third, fast)] = measured;
    assert_eq!(first, third);
    assert!(first.iter().any(|byte| *byte != 0));
    println!(
        "dot: {slow:?} by the slice for x86-64-v1, {fast:?} by that for v3: {:.1} times as fast",
        slow.as_secs_f64() / fast.as_secs_f64()
    );
}

#[test]
fn a_target_without_a_slice_is_refused_with_what_to_build() {
    let fat = Fat::new("levels", &[Cpu::V2, Cpu::V3]);
    let (address, serving) = serve(accepting().limit_cpu_features(0));
    let source = connect(&address);
    let error = levels(&fat.load(&source), &[]).unwrap_err();
    let Error::NoSlice { why, .. } = &error else {
        panic!("{error}");
    };
    let expected = "the peer is x86-64-v1, and the library has slices for x86-64-v2, x86-64-v3; help: `cargo ifunc build --cpu \
                    x86-64-v1 --cpu x86-64-v2 --cpu x86-64-v3`";
    assert_eq!(why, expected);
    // One image is sent, and the target says what it lacks.
    let one = Fat::new("levels", &[Cpu::V2]);
    let error = levels(&one.load(&source), &[]).unwrap_err();
    let Error::Rejected { why, detail, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*why, Rejection::CpuFeature);
    assert!(
        detail.contains("built for x86-64-v2, and this target states that it is x86-64-v1"),
        "{detail}"
    );
    serving.stop().unwrap();
}

#[test]
fn an_image_takes_its_slices_along() {
    if !has_v3() {
        return;
    }
    let fat = Fat::new("levels", &[Cpu::V1, Cpu::V3]);
    let nodes = group(&[ALL, 0, ALL, 0], accepting);
    let source = connect(&nodes[0].0);
    let handle = fat.load(&source);
    assert_eq!(levels(&handle, &[1, 2, 3]).unwrap(), 3131);
    assert_eq!(levels(&handle, &[3, 2, 1, 0]).unwrap(), 31313);
    // To itself, which it reaches without a link.
    assert_eq!(levels(&handle, &[0, 0, 1]).unwrap(), 3331);
    // Another source begins where the other slice runs.
    let other = connect(&nodes[1].0);
    assert_eq!(levels(&fat.load(&other), &[0, 1, 2]).unwrap(), 1313);
    for (_, serving) in nodes {
        serving.stop().unwrap();
    }
}

#[test]
fn a_node_without_a_slice_is_named() {
    if !has_v3() {
        return;
    }
    let fat = Fat::new("levels", &[Cpu::V2, Cpu::V3]);
    let nodes = group(&[ALL, 0], accepting);
    let source = connect(&nodes[0].0);
    let error = levels(&fat.load(&source), &[1]).unwrap_err();
    let Error::Rejected { why, detail, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*why, Rejection::Architecture);
    assert!(
        detail.contains("the peer is x86-64-v1, and the library has slices for x86-64-v3, x86-64-v2; help: "),
        "{detail}"
    );
    for (_, serving) in nodes {
        serving.stop().unwrap();
    }
}

#[test]
fn a_node_keeps_no_slice_that_its_policy_would_refuse() {
    if !has_v3() {
        return;
    }
    let key = SecretKey::from_seed([3; 32], "authors");
    let fat = Fat::new("levels", &[Cpu::V1, Cpu::V3]);
    let by_key = || {
        // SAFETY: the ifuncs of these tests.
        let policy = unsafe { Policy::new().accept_key("authors", key.public(), Grant::new()) };
        Target::builder().policy(policy)
    };
    let nodes = group(&[0, ALL], by_key);
    fat.sign(&key, 1);
    let source = connect(&nodes[0].0);
    let error = levels(&fat.load(&source), &[1]).unwrap_err();
    let Error::Rejected { why, detail, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*why, Rejection::Signature);
    assert!(
        detail.contains("the image's slice for x86-64-v3, which would be sent on: the image is not signed"),
        "{detail}"
    );
    fat.sign(&key, 2);
    let source = connect(&nodes[0].0);
    // Both nodes check the signature of what they run.
    assert_eq!(levels(&fat.load(&source), &[1, 0]).unwrap(), 131);
    for (_, serving) in nodes {
        serving.stop().unwrap();
    }
}

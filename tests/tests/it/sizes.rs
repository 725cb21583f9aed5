//! How large the images of the examples are. What travels with a first message is what this keeps small.

use ifunc_build::{BuildOptions, Quiet, build_packages};

use crate::common;

#[test]
fn images_stay_small() {
    let options = BuildOptions {
        current_dir: Some(common::workspace()),
        packages: vec![
            "example-01-hello-ifuncs".into(),
            "example-02-compressed-insert-ifuncs".into(),
        ],
        ..BuildOptions::default()
    };
    let built = build_packages(&options, &mut Quiet).unwrap_or_else(|error| panic!("{error}"));
    let size = |name: &str| {
        built
            .iter()
            .find(|built| built.name == name)
            .expect(name)
            .image
            .len()
    };
    // Half of `add` is the function for batches.
    for (name, limit) in [("add", 460), ("multiply", 420), ("insert_compressed", 16 << 10)] {
        let size = size(name);
        println!("{name}: {size} bytes, at most {limit}");
        assert!(
            size <= limit,
            "the image of `{name}` has {size} bytes, the limit is {limit}"
        );
    }
}

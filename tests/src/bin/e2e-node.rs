//! A node of a group: `e2e-node ADDRESS DIRECTORY NUMBER SIZE`.

use ifunc_rt::group::Group;
use ifunc_rt::rendezvous::Rendezvous;
use ifunc_tests::State;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, directory, number, size] = &arguments[..] else {
        return Err("usage: e2e-node ADDRESS DIRECTORY NUMBER SIZE".into());
    };
    let meeting = Rendezvous::in_directory(directory, "e2e")?;
    // SAFETY: the ifuncs of these tests.
    let mut target = ifunc_rt::Target::builder()
        .policy(unsafe { ifunc_rt::Policy::trust_every_peer() })
        .listen(address)?;
    target.join(Group::meeting(&meeting, number.parse()?, size.parse()?))?;
    println!("ifunc: ready {}", target.address());
    target.serve(&mut State {
        counter: 0,
        changes: 0,
    })?;
    Ok(())
}

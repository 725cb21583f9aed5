//! Sources of other hosts, by their keys.

use ifunc_rt::keys::{SecretKey, TlsKeys};
use ifunc_rt::{Source, SourceOptions};
use ifuncd_interfaces::NodeError;
use ifuncd_tests_ifuncs::{d_get, d_put, d_time};

use super::capabilities::error;
use super::refusals::assert_audited;
use super::running::{Daemon, TIMEOUT, handle};

#[test]
fn each_key_has_its_own_rights_and_data() {
    let mut daemon = Daemon::prepare("process");
    let key = |name: &str| SecretKey::generate(name).unwrap();
    let (own, ada, bob, eve) = (key("ifuncd"), key("ada"), key("bob"), key("eve"));
    let target = own.public();
    own.write_new(daemon.path("ifuncd.key")).unwrap();
    let peer = |name: &str, key: &SecretKey, capabilities: &str| {
        let public = key.public();
        format!(
            "[[peer]]\nname = \"{name}\"\npublic = \"{public}\"\ncapabilities = [{capabilities}]\nunsigned = true\n"
        )
    };
    daemon.write(
        &(peer("ada", &ada, "\"store\", \"time\"") + &peer("bob", &bob, "\"store\"")),
        "key = \"ifuncd.key\"\n",
    );
    daemon.run();
    let address = format!("tls://{}", daemon.wait_for("ifunc: ready tls://"));
    let connect = |key: SecretKey| {
        let options = SourceOptions::default().timeout(TIMEOUT).connect_timeout(TIMEOUT);
        Source::connect_with(&address, options.tls(Some(TlsKeys::new(key).peer(target))))
    };
    let (ada, bob) = (connect(ada).unwrap(), connect(bob).unwrap());
    let put = |source: &Source, value: u8| {
        let put = handle::<d_put>(source, "d_put");
        put.call(&(b"key".as_slice(), [value].as_slice()))
            .unwrap()
            .wait()
            .unwrap()
    };
    let get = |source: &Source| {
        handle::<d_get>(source, "d_get")
            .call(b"key")
            .unwrap()
            .wait()
            .unwrap()
    };
    assert_eq!(put(&ada, 1), 0);
    assert_eq!(get(&bob), (error(NodeError::NotFound), 0));
    assert_eq!(put(&bob, 2), 0);
    assert_eq!((get(&ada), get(&bob)), ((1, 1), (1, 2)));
    assert!(handle::<d_time>(&ada, "d_time").call(&0).unwrap().wait().is_ok());
    assert!(handle::<d_time>(&bob, "d_time").call(&0).unwrap().wait().is_err());
    // A key that the configuration does not name does not connect, and nor does one without a key.
    let eve = connect(eve).map(drop).unwrap_err();
    assert!(eve.to_string().contains("key"), "{eve}");
    daemon.wait_for_log("refused");
    assert_audited(&daemon, "connection", 1.0);
}

//! Addresses.

use ifunc_rt::{Address, WorkerAddress};

/// An address is printed as what parses to the same.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<Address>() {
        Ok(address) => assert_eq!(address.to_string().parse(), Ok(address)),
        Err(error) => {
            let _ = error.to_string();
        }
    }
    if let Ok(worker) = text.parse::<WorkerAddress>() {
        assert_eq!(worker.to_string().parse(), Ok(worker));
    }
}

use core::fmt;

struct Store;

#[ifunc::export]
impl fmt::Display for Store {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

fn main() {}

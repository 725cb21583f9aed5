struct Settings {
    _limit: u64,
}

#[ifunc::export]
static SETTINGS: Settings = Settings { _limit: 1 };

fn main() {}

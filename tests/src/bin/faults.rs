//! The fault matrix: `cargo xtask faults` builds it and what it needs, and starts it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ifunc_tests::faults::run::{AnyCell, run};
use ifunc_tests::faults::scene::Setting;

/// As long as the matrix says.
const STOP: Duration = Duration::from_secs(5);
/// Long enough to be told from what a busy machine does by itself.
const SHORT_STOP: Duration = Duration::from_secs(2);
/// A short run shares the machine with other tests. How soon a death is noticed is in its line.
const DELAY: Duration = Duration::from_secs(10);

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let all = AnyCell::all();
    let mut chosen: Option<Vec<AnyCell>> = None;
    let mut quick = false;
    let mut side_by_side = 8;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("`{arg}` needs a value"));
        match &*arg {
            "--quick" => quick = true,
            "--only" => {
                let pattern = value()?;
                let cells = chosen.get_or_insert_default();
                let before = cells.len();
                cells.extend(all.iter().filter(|cell| cell.matches(&pattern)));
                if cells.len() == before {
                    return Err(format!("no cell is called `{pattern}`; help: shm/target/kill/mid-frame, or the first parts of it; `*` is any part").into());
                }
            }
            "--jobs" => side_by_side = value()?.parse()?,
            _ => return Err(format!("`{arg}` is no option").into()),
        }
    }
    let mut cells = chosen.unwrap_or(all);
    if quick {
        cells.retain(|cell| cell.is_quick());
    }
    let programs = std::env::current_exe()?;
    let scratch = std::env::temp_dir().join(format!("ifunc-faults-{}", std::process::id()));
    let setting = Setting {
        programs: programs.parent().ok_or("a program lies in a folder")?.to_owned(),
        libraries: std::env::var_os("FAULT_LIBRARIES")
            .map(PathBuf::from)
            .ok_or("FAULT_LIBRARIES is not set; help: `cargo xtask faults` builds the ifuncs, and sets it")?,
        scratch,
        stop: if quick { SHORT_STOP } else { STOP },
        delay: if quick { DELAY } else { Duration::ZERO },
    };
    let failed = run(&cells, &setting, side_by_side);
    // Failed cells have printed why: its files are not needed.
    std::fs::remove_dir_all(&setting.scratch)?;
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

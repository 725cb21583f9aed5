//! A source that comes, sends a little and leaves; or stays and sends until it is killed.

use super::random::Random;
use super::{Arguments, Result, connect, library, say};
use crate::hash;
use crate::ledger::{SOURCES, turn, words};

/// `source`, `seed`, `how`: `leave`, `flood` or `stay`.
pub(super) fn run(args: &Arguments<'_>) -> Result {
    let mut random = Random::new(args.number("seed")?);
    let source = connect(args)?;
    // SAFETY: built from this checkout.
    let (ledger, soak, c_soak) = unsafe {
        (
            source.load_path(library(args, "t_soak_turn")?)?,
            source.load_path(library(args, "t_soak")?)?,
            source.load_path(library(args, "t_c_soak")?)?,
        )
    };
    let number = args.number::<u64>("source")? % SOURCES as u64;
    ledger.send(&turn::payload(turn::HELLO, number, 0))?;
    let (mut count, mut stream) = (0u64, 0);
    let mut payload = vec![7; 1 << 20];
    let mut one = |random: &mut Random, answer: bool| -> Result {
        let payload = &mut payload[..random.message()];
        let len = payload.len().min(8);
        payload[..len].copy_from_slice(&count.to_le_bytes()[..len]);
        stream = hash::mix(stream, hash::bytes(payload));
        count += 1;
        let which = if random.once_in(2) { &soak } else { &c_soak };
        if !answer {
            return Ok(which.send(payload)?);
        }
        let answer = words(&which.call(payload)?.wait()?);
        match answer == Some([count - 1, stream, 0]) {
            true => Ok(()),
            false => Err(format!("message {count} was answered {answer:x?}").into()),
        }
    };
    match args.text("how")? {
        "leave" => {
            for _ in 0..random.below(40) {
                one(&mut random, false)?;
            }
            one(&mut random, true)?;
        }
        "flood" => {
            say("flooding");
            loop {
                let answer = random.once_in(8);
                one(&mut random, answer)?;
            }
        }
        _ => {
            // One of many that are there at the same time: sends when it is told to.
            one(&mut random, true)?;
            say("ready");
            loop {
                let mut line = String::new();
                if std::io::stdin().read_line(&mut line)? == 0 || line.trim() == "leave" {
                    break;
                }
                for _ in 0..20 {
                    one(&mut random, false)?;
                }
                one(&mut random, true)?;
                say("sent");
            }
        }
    }
    drop(
        ledger
            .call(&turn::payload(turn::GOODBYE, count, stream))?
            .wait()?,
    );
    drop((ledger, soak, c_soak, source));
    say(&format!("done messages={count}"));
    Ok(())
}

//! Objects and archives, as the linker reads them.

use ifunc_abi::image::Image;
use ifunc_link::{Imports, Input, Linker, Request, Role};
use object::{Object as _, ObjectSymbol as _};

/// No image of a mutated object is larger: a few bytes cannot make the linker write without end.
const LARGEST: usize = 4 << 20;

/// The bytes as an object or an archive. The ifunc is the first symbol that ends in `_main`.
pub fn run(data: &[u8]) {
    let name = name_of(data).unwrap_or_else(|| "f".into());
    let inputs = [Input {
        name: "input.o",
        data,
        role: Role::User,
    }];
    let linker = match Linker::open(&inputs) {
        Ok(linker) => linker,
        Err(error) => {
            assert!(error.to_string().contains("help: "), "{error}");
            return;
        }
    };
    match linker.link_explained(&Request::new(&name, Imports::Any)) {
        Ok(linked) => {
            assert!(linked.image.len() <= LARGEST);
            Image::parse(&linked.image).expect("an image");
            crate::image::run(&linked.image);
            if !linked.debug.is_empty() {
                object::File::parse(&*linked.debug).expect("an object");
            }
        }
        Err(error) => assert!(!error.reasons.is_empty() && !error.to_string().is_empty()),
    }
}

fn name_of(data: &[u8]) -> Option<String> {
    let file = object::File::parse(data).ok()?;
    let mut names = file.symbols().take(1000).filter_map(|symbol| {
        let name = symbol.name().ok()?.strip_suffix("_main")?;
        Some(name.to_owned())
    });
    names.find(|name| ifunc_abi::name::is_valid(name))
}

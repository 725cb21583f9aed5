//! The images, on the server's own type.

use std::fs;
use std::path::PathBuf;

use example_11_timeseries::database::Database;
use example_11_timeseries_first_ifuncs::{Appended, first_append};
use example_11_timeseries_ifuncs::{Changed, DbError, Expr, Query, append, checkpoint, scan};
use ifunc_test::{Fixture, run};

fn file(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("timeseries-{name}-{}.redb", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

#[test]
#[ignore = "nightly: the images of this example compile for long"]
fn rows_survive_and_are_scanned() {
    let path = file("rows");
    let mut database = Database::open(&path, 100).unwrap();
    let rows = ("load", &[1_i64, 2, 3][..], &[0.5, 1.5, 2.5][..]);
    assert_eq!(
        run::<append>(rows, &mut database).unwrap(),
        Changed { rows: 3, error: 0 }
    );
    let (id, committed) = run::<checkpoint>("begin", &mut database).unwrap();
    assert_eq!(committed.rows, 3);
    assert_eq!(database.note(&id).unwrap().as_deref(), Some("begin"));
    drop(database);

    let mut database = Database::open(&path, 100).unwrap();
    let query = Query {
        series: "load".into(),
        filter: Expr::Number(1.0).less(Expr::Value),
        of: Expr::Time,
    };
    let summary = run::<scan>(&query, &mut database).unwrap().unwrap();
    assert_eq!((summary.rows, summary.selected, summary.sum), (3, 2, 5.0));
    fs::remove_file(path).unwrap();
}

#[test]
#[ignore = "nightly: the images of this example compile for long"]
fn a_client_of_the_first_version_is_served() {
    let path = file("first");
    let mut database = Database::open(&path, 2).unwrap();
    let mut fixture = Fixture::new().unwrap();
    let rows = ("load", &[1_i64, 2][..], &[0.0, 0.0][..]);
    assert_eq!(
        fixture.run::<first_append>(rows, &mut database).unwrap(),
        Appended { rows: 2, error: 0 }
    );
    let more = ("load", &[3_i64][..], &[0.0][..]);
    let new = fixture.run::<append>(more, &mut database).unwrap();
    assert_eq!(new.error, DbError::Full as i64);
    let old = fixture.run::<first_append>(more, &mut database).unwrap();
    assert_eq!(
        old.error,
        example_11_timeseries_first_ifuncs::DbError::Other as i64
    );
    fs::remove_file(path).unwrap();
}

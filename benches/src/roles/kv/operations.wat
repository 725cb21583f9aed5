(module
  (import "records" "get" (func $get (param i64 i32) (result i32)))
  (import "records" "put" (func $put (param i64 i32)))
  (import "records" "scan" (func $scan (param i64 i64 i32) (result i32)))
  ;; the operation at 0, its answer at 1024, records from 4096 on
  (memory (export "memory") 2)

  (func (export "get") (result i32)
    (i32.mul (i32.const 8) (call $get (i64.load (i32.const 0)) (i32.const 1024))))

  (func (export "put") (result i32)
    (call $put (i64.load (i32.const 0)) (i32.const 8))
    (i32.const 0))

  (func (export "scan") (result i32)
    (local $at i32) (local $end i32) (local $records i64) (local $sum i64) (local $amount i64)
    (local.set $at (i32.const 4096))
    (local.set $end
      (i32.add (i32.const 4096)
        (i32.mul (i32.const 64)
          (call $scan (i64.load (i32.const 0)) (i64.load (i32.const 8)) (i32.const 4096)))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $amount (i64.load (local.get $at)))
        (if (i64.ge_u (local.get $amount) (i64.load (i32.const 16)))
          (then
            (local.set $records (i64.add (local.get $records) (i64.const 1)))
            (local.set $sum (i64.add (local.get $sum) (local.get $amount)))))
        (local.set $at (i32.add (local.get $at) (i32.const 64)))
        (br $next)))
    (i64.store (i32.const 1024) (local.get $records))
    (i64.store (i32.const 1032) (local.get $sum))
    (i32.const 2))

  (func (export "add") (result i32)
    (local $amount i64)
    (if (i32.eqz (call $get (i64.load (i32.const 0)) (i32.const 4096)))
      (then (return (i32.const 0))))
    (local.set $amount (i64.add (i64.load (i32.const 4096)) (i64.load (i32.const 8))))
    (if (i64.gt_u (local.get $amount) (i64.load (i32.const 16)))
      (then (local.set $amount (i64.load (i32.const 16)))))
    (i64.store (i32.const 4096) (local.get $amount))
    (call $put (i64.load (i32.const 0)) (i32.const 4096))
    (i64.store (i32.const 1024) (local.get $amount))
    (i32.const 1)))

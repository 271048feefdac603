module windlass/benches

go 1.24

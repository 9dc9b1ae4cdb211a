
# Behind the frame of Redis's tests: what a test leaves behind that stopped in the middle is cleared away, so that those behind it begin as
# they would have begun. It may have left keys, replies that nobody has read, a transaction, or another database.

rename test ::test_and_leave
proc test {name code {okpattern undefined} {tags {}}} {
    set failed $::num_failed
    uplevel 1 [list ::test_and_leave $name $code $okpattern $tags]
    if {$::num_failed > $failed} {
        reconnect
        foreach database {10 9} {
            r select $database
            r flushdb
        }
    }
}

MyType = "Scheduler"
Name = "sched@host"
Machine = "host.example.org"
TotalRunningJobs = 3
TotalIdleJobs = 12
TotalHeldJobs = 1

MyType = "Scheduler"
Name = "alongername.example.org"
Machine = "alongername.example.org"
TotalRunningJobs = 3
TotalIdleJobs = 12
TotalHeldJobs = 1

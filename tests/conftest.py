"""Scripts that tests start under mpiexec are not tests themselves."""

collect_ignore_glob = ["mpi/job_*.py"]

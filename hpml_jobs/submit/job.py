"""Entry point of jobs that version 0.4.0 queued: refuse them with the version message.

Pickled arrays and pack scripts of 0.4.0 name this module. Nothing else uses it; 0.7.0 removes it.
"""

from hpml_jobs.job.run import main, run_cell

__all__ = ["run_cell"]

if __name__ == "__main__":
    main()

"""Run one attempt of a cell: `python -m hpml_jobs.job CELL_FOLDER`."""

from hpml_jobs.job.run import main

if __name__ == "__main__":
    main()

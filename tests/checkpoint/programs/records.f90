! Writes unformatted records of growing length, reads them back and sums them up.
program records
  implicit none
  integer, parameter :: steps = 150
  integer :: step, i, j, length
  double precision :: total
  double precision, allocatable :: row(:)
  open (10, file='records.bin', form='unformatted', access='sequential', status='replace')
  do step = 1, steps
    length = 10 * step
    allocate (row(length))
    do i = 1, length
      row(i) = 0d0
      do j = 1, 200
        row(i) = row(i) + sin(dble(i * j) / step) / j
      end do
    end do
    write (10) length, row
    deallocate (row)
    print '(i6, i8)', step, length
    call flush (6)
  end do
  rewind (10)
  total = 0
  do step = 1, steps
    read (10) length
    backspace (10)
    allocate (row(length))
    read (10) length, row
    total = total + sum(row)
    deallocate (row)
  end do
  close (10)
  print '(es24.16)', total
end program
